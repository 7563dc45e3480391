// One sentence where the page does not start, instead of a blank one. It runs before the other
// scripts and is written in the JavaScript of old browsers, which cannot read those.

(function () {
  var NEEDS = "Chrome or Edge 110, Firefox 115 or Safari 16.4";

  function explain(reason) {
    if (location.protocol === "file:") {
      return "Browsers do not run this page from a file: put its folder on a web server, such as " +
        "python -m http.server, and open its address there.";
    }
    if (!("noModule" in document.createElement("script")) || /SyntaxError/.test(reason)) {
      return "This browser is too old for this page, which needs at least " + NEEDS + ".";
    }
    return "The page did not start: " + (reason || "a file of it is missing or damaged") +
      ". Reload it; if that does not help, it has to be put here again.";
  }

  function report(reason) {
    if (document.documentElement.getAttribute("data-started")) return;
    var element = document.getElementById("start-error");
    if (!element) {
      document.addEventListener("DOMContentLoaded", function () { report(reason); });
      return;
    }
    element.textContent = explain(String(reason || ""));
    element.removeAttribute("hidden");
    element.style.display = "block"; // old browsers do not know `hidden`
  }

  window.addEventListener("error", function (event) {
    report(event.error || event.message);
  }, true); // of files that are missing, too
  window.addEventListener("unhandledrejection", function (event) { report(event.reason); });
  if (!("noModule" in document.createElement("script"))) report("");
})();
