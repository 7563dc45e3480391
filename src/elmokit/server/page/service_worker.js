// Keeps the files of a static page, so that it opens without a network.
//
// `elmo page` puts the version and the files in the place of the next two lines.
const VERSION = "";
const SMALL_FILES = [], LARGE_FILES = [];

const PREFIX = `elmokit ${self.registration.scope} `;
const CACHE = PREFIX + VERSION;
const ROOT = self.registration.scope;
const urls = (paths) => paths.map((path) => new URL(path, ROOT).href);

// Small files at once; large ones are kept when the page loads them, or taken from the version
// before: their names say what is in them.
self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(CACHE);
    const requests = urls(SMALL_FILES).map((url) => new Request(url, { cache: "no-cache" }));
    const responses = await Promise.all(requests.map(load));
    await Promise.all(requests.map((request, n) => cache.put(request, responses[n])));
    for (const url of urls(LARGE_FILES)) {
      const kept = await caches.match(url);
      if (kept) await cache.put(url, kept);
    }
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const url = event.request.url.split(/[?#]/u)[0];
  const known = url === ROOT ? new URL("index.html", ROOT).href : url;
  if (event.request.method !== "GET") return;
  if (urls(SMALL_FILES).includes(known)) event.respondWith(fromCache(known, event));
  if (urls(LARGE_FILES).includes(known)) event.respondWith(fromCache(known, event));
});

// A response without its redirect: some hosts redirect index.html to its folder, and browsers open
// no page from a redirected response.
async function load(request) {
  const response = await fetch(request);
  const { ok, redirected, status, headers } = response;
  if (!ok) throw new TypeError(`${request.url}: the server answered ${status}`);
  if (!redirected) return response;
  return new Response(await response.blob(), { status, headers });
}

async function fromCache(url, event) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(url);
  if (kept) return kept;
  const response = await fetch(event.request);
  if (response.ok) event.waitUntil(cache.put(url, response.clone()));
  return response;
}
