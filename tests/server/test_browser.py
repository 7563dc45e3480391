"""The page in a real browser: all of it can be clicked, typed, seen, linked and recovered."""

import json
import re
import shutil
from urllib.parse import urlsplit

import pytest

from elmokit.search.index import Index
from elmokit.server.limits import Limits
from elmokit.server.resources import AppResources
from elmokit.server.run import listening
from elmokit.server.schemas import LearnedLayerWeights

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright (pip install playwright), which is not there"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
VIEWS = ["Uses", "Alike", "Words", "Mixes", "Search"]
LIT = """canvas => {
    const gl = canvas.getContext("webgl");
    const pixels = new Uint8Array(4 * canvas.width * canvas.height);
    gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    return pixels.filter((alpha, place) => place % 4 === 3 && alpha).length;
}"""
REFUSED = "Failed to load resource"  # what a browser says of every answer that is none


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """Open the page of a service; in the end no page may have found an error."""
    contexts, errors = [], []

    def open_page(url, *, refusals=False, **settings):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}} | settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))

        def hear(message):
            told_of = refusals and message.text.startswith(REFUSED)
            if message.type in ("error", "warning") and not told_of:
                errors.append(message.text)

        page.on("console", hear)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


def view(page, name):
    page.get_by_role("tab", name=name).click()


def sees(page, selector, text):
    playwright.expect(page.locator(selector)).to_contain_text(text, timeout=10_000)


def counts(page, selector, number):
    playwright.expect(page.locator(selector)).to_have_count(number, timeout=10_000)


def linked(page, part):
    page.wait_for_function("part => decodeURIComponent(location.hash).includes(part)", arg=part)


def test_the_uses_of_a_word_part_company_layer_by_layer(served, visit):
    page = visit(served.url)
    counts(page, "#uses-list li", 6)
    sees(page, "#uses-axes", "Layer 0: all uses are the same.")
    together = page.locator("#uses-plot").evaluate(LIT)
    assert together > 0
    counts(page, "#uses-numbers span", 1)
    page.locator("#uses-layer").focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator("#uses-layer-shown")).to_have_text("1")
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator("#uses-layer-shown")).to_have_text("2")
    sees(page, "#uses-axes", "Layer 2: the axes show")
    assert page.locator("#uses-numbers span").count() > 3
    assert page.locator("#uses-plot").evaluate(LIT) > 3 * together
    page.locator("#uses-layer").fill("1.5")
    sees(page, "#uses-layer-shown", "1.5")
    linked(page, "uses-layer=1.5")


def test_a_point_lights_its_sentence_by_mouse_and_by_keyboard(served, visit):
    page = visit(served.url)
    counts(page, "#uses-list li", 6)
    with page.expect_response("**/contexts") as answered:
        page.locator("#uses-texts").fill("A bank lent\nThe banks\nmy own bank too")
    found = answered.value.json()
    page.locator("#uses-layer").fill("2")
    counts(page, "#uses-list li", 3)
    points = found["layers"][2]["points"]
    (left, right), (bottom, top) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    most = max(right - left, top - bottom) / 2
    box = page.locator("#uses-plot").bounding_box()
    for place, (x, y) in enumerate(points):
        page.mouse.move(
            box["x"] + box["width"] * (1 + 0.92 * (x - (left + right) / 2) / most) / 2,
            box["y"] + box["height"] * (1 - 0.92 * (y - (bottom + top) / 2) / most) / 2,
        )
        sees(page, "#uses-chosen", " ".join(found["contexts"][place]["words"]))
    page.locator("#uses-plot").focus()
    page.keyboard.press("ArrowRight")
    sees(page, "#uses-chosen", "A bank lent")
    sees(page, "#uses-chosen mark", "bank")
    page.keyboard.press("ArrowLeft")
    sees(page, "#uses-chosen", "my own bank too")
    page.locator("#uses-list li").nth(1).focus()
    sees(page, "#uses-list li.chosen", "The banks")
    linked(page, "uses-use=1")


def test_without_webgl_the_uses_are_listed_all_the_same(served, visit):
    page = visit("about:blank")
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(served.url)
    counts(page, "#uses-list li", 6)
    sees(page, "#uses", "This browser has no WebGL")
    page.locator("#uses-layer").fill("2")
    page.locator("#uses-list li").nth(2).focus()
    sees(page, "#uses-chosen", "The bank refused")


def test_labels_before_tabs_name_the_groups(served, visit):
    page = visit(served.url)
    page.locator("#uses-texts").fill("money\tA bank lent\nriver\tThe bank of it\nmoney\tbanks")
    counts(page, "#uses-list li", 3)
    sees(page, "#uses-groups", "moneyriver")


def test_a_word_that_is_not_there_is_told_and_forgotten(served, visit):
    page = visit(served.url, refusals=True)
    page.locator("#uses-word").fill("zebra")
    sees(page, "#uses-trouble", "'zebra' does not occur in the texts")
    counts(page, "#uses-list li", 0)
    page.locator("#uses-word").fill("")
    playwright.expect(page.locator("#uses-trouble")).to_be_hidden()
    page.locator("#uses-word").fill("bank")
    counts(page, "#uses-list li", 6)


def test_two_sentences_make_a_grid_that_changes_with_the_layer(served, visit):
    page = visit(served.url)
    view(page, "Alike")
    page.locator("#alike-first").fill("a bank lent")
    page.locator("#alike-second").fill("the bank")
    counts(page, "#alike-grid tbody tr", 3)
    counts(page, "#alike-grid thead th", 3)
    high = page.locator("#alike-grid tbody").inner_text()
    page.locator("#alike-layer").fill("0")
    sees(page, "#alike-layer-shown", "0")
    assert page.locator("#alike-grid tbody").inner_text() != high
    cell = page.locator("#alike-grid tbody tr").nth(1).locator("td").nth(1)
    assert cell.inner_text() == "1.00"  # layer 0 knows the spelling only
    assert cell.evaluate("cell => getComputedStyle(cell).backgroundColor") != "rgba(0, 0, 0, 0)"


def test_words_come_as_one_types_and_go_where_they_belong(served, visit):
    page = visit(served.url)
    view(page, "Words")
    page.locator("#words-text").fill("")
    page.locator("#words-text").press_sequentially("word1 word2", delay=10)
    counts(page, "#words-columns h2", 2)
    counts(page, "#words-columns .bar:enabled", 12)
    counts(page, "#words-columns .bar:disabled", 2)  # the sentence begins, or ends
    assert "%" in page.locator("#words-columns .bar").first.inner_text()
    likeliest = page.locator("#words-columns .bar:enabled").first
    word = likeliest.locator("span").first.inner_text()
    likeliest.click()
    playwright.expect(page.locator("#words-text")).to_have_value(f"word1 word2 {word}")
    page.locator("#words-text").fill("___ word1 ___ word2")
    sees(page, "#words-columns", "Gap 2")
    second = page.locator("#words-columns > div").nth(1).locator(".bar").first
    word = second.locator("span").first.inner_text()
    second.press("Enter")
    playwright.expect(page.locator("#words-text")).to_have_value(f"___ word1 {word} word2")


def test_mixes_are_shown_or_said_to_be_missing(served, serving, language_model, visit):
    page = visit(served.url)
    view(page, "Mixes")
    counts(page, "#mixes-table tbody tr", 2)
    counts(page, "#mixes-table td", 6)
    playwright.expect(page.locator("#mixes-none")).to_be_hidden()
    mixes = [
        LearnedLayerWeights(
            "srl", "six", "input", [0, 1, 2], [0.25, 0.5, 0.25]
        ),  # as those that ship
        LearnedLayerWeights("srl", "top", "input", [2], [1.0]),
    ]
    few = visit(serving(language_model, layer_weights=mixes).url)
    view(few, "Mixes")
    sees(few, "#mixes-table tbody", "srl, six, input")
    sees(few, "#mixes-table tbody", "0.50")
    sees(few, "#mixes-table tbody tr:nth-child(2) td:nth-child(4)", "1.00")
    bare = visit(serving(language_model).url)
    view(bare, "Mixes")
    playwright.expect(bare.locator("#mixes-none")).to_be_visible()


def test_what_is_found_has_words_lit(served, visit):
    page = visit(served.url)
    view(page, "Search")
    page.locator("#search-query").fill("the bank of a river")
    counts(page, "#search-found li", 3)
    sees(page, "#search-found li >> nth=0", "text.txt, line")
    assert page.locator("#search-found mark").count() >= 3


def test_uses_of_a_word_of_the_query_are_found(serving, language_model, visit, tmp_path):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    built = Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], language_model, unit="words")
    with built as index:
        page = visit(serving(language_model, index=index).url, refusals=True)
        view(page, "Search")
        sees(page, "#search-trouble", "an index of words; give a word of the text")
        page.locator("#search-query").fill("The bank of a river .")
        page.locator("#search-word").fill("bank")
        counts(page, "#search-found li", 2)
        counts(page, "#search-found mark", 2)
        sees(page, "#search-found li >> nth=0", "The bank of a river .")
        linked(page, "search-word=bank")


def test_without_an_index_the_page_says_how_to_make_one(serving, language_model, visit):
    page = visit(serving(language_model).url, refusals=True)
    view(page, "Search")
    sees(page, "#search-trouble", "elmo index build")


def test_the_tabs_work_by_keyboard(served, visit):
    page = visit(served.url)
    page.keyboard.press("Tab")
    for key, name in [
        ("ArrowRight", "Alike"), ("End", "Search"), ("ArrowRight", "Uses"),
        ("ArrowLeft", "Search"), ("Home", "Uses"),
    ]:  # fmt: skip
        page.keyboard.press(key)
        tab = page.get_by_role("tab", name=name)
        playwright.expect(tab).to_have_attribute("aria-selected", "true")
        playwright.expect(tab).to_be_focused()
        playwright.expect(page.get_by_role("tabpanel")).to_have_count(1)
    page.keyboard.press("Tab")
    playwright.expect(page.locator("#uses-word")).to_be_focused()


def test_a_link_shows_what_its_sender_saw(served, visit):
    page = visit(served.url)
    page.locator("#uses-word").fill("bänk & co=#")
    page.locator("#uses-word").fill("a")
    page.locator("#uses-texts").fill("a cat\nan owl & a dog = 100 %\n+ a # hash")
    counts(page, "#uses-list li", 4)
    page.locator("#uses-list li").nth(2).focus()
    page.locator("#uses-layer").fill("1.25")
    linked(page, "uses-use=2")
    linked(page, "uses-layer=1.25")
    other = visit(page.url)
    counts(other, "#uses-list li", 4)
    for name in ("uses-word", "uses-texts", "uses-layer"):
        value = page.locator(f"#{name}").input_value()
        playwright.expect(other.locator(f"#{name}")).to_have_value(value)
    sees(other, "#uses-chosen", page.locator("#uses-chosen").inner_text().strip())
    pictures = [each.locator("#uses-plot").evaluate("c => c.toDataURL()") for each in (page, other)]
    assert pictures[0] == pictures[1]
    other.evaluate("location.hash = 'view=words&words-text=word3&nonsense=1'")
    playwright.expect(other.locator("#words-text")).to_have_value("word3")
    counts(other, "#words-columns .bar:enabled", 12)


def test_the_address_follows_after_a_link_that_came_while_it_was_changing(served, visit):
    page = visit(served.url)
    counts(page, "#uses-list li", 6)
    page.evaluate("""() => {
        const word = document.getElementById("uses-word");
        word.value = "the";
        word.dispatchEvent(new Event("input"));
        location.hash = "view=words&words-text=word3";
    }""")
    playwright.expect(page.locator("#words-text")).to_have_value("word3")
    page.locator("#words-text").fill("word4")
    linked(page, "words-text=word4")


@pytest.mark.parametrize("layer", ["-1", "-Infinity", "7", "none"])
def test_a_link_to_a_layer_that_is_not_there_shows_one_that_is(served, visit, layer):
    shown = "2" if layer == "7" else "0"
    page = visit(f"{served.url}/#uses-layer={layer}&alike-layer={layer}")
    counts(page, "#uses-list li", 6)
    playwright.expect(page.locator("#uses-layer-shown")).to_have_text(shown)
    sees(page, "#uses-axes", f"Layer {shown}")
    view(page, "Alike")
    counts(page, "#alike-grid tbody tr", 8)
    playwright.expect(page.locator("#alike-layer-shown")).to_have_text(shown)


def test_a_service_that_vanished_is_told_of_and_comes_back(language_model, visit):
    def start(port):
        resources = AppResources(Limits())
        resources.open(language_model)
        return listening(resources, port=port)

    with start(0) as url:
        page = visit(url, refusals=True)
        counts(page, "#uses-list li", 6)
    page.locator("#uses-texts").fill("a bank\nthe bank")
    sees(page, "#uses-trouble", "The service does not answer; this page asks again until it does.")
    counts(page, "#uses-list li", 6)  # what was there stays
    with start(urlsplit(url).port):
        counts(page, "#uses-list li", 2)
        playwright.expect(page.locator("#uses-trouble")).to_be_hidden()


def test_a_busy_service_is_asked_again_when_it_says(serving, language_model, visit):
    narrow = serving(language_model, max_queued=1)
    page = visit(narrow.url, refusals=True)
    counts(page, "#uses-list li", 6)
    asked = []
    page.on("request", lambda request: asked.append(request.url.endswith("/contexts")))
    with narrow.held():
        page.locator("#uses-texts").fill("a bank\nthe bank")
        sees(page, "#uses-trouble", "1 requests are waiting, the limit is 1")
        assert sum(asked) == 1
    counts(page, "#uses-list li", 2)
    playwright.expect(page.locator("#uses-trouble")).to_be_hidden()


def test_a_token_is_asked_for_once(serving, language_model, visit):
    closed = serving(language_model, token="secret")
    page = visit(closed.url, refusals=True)
    sees(page, "#uses-trouble", "the token is missing or wrong")
    page.locator("#token-given").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    playwright.expect(page.locator("#token")).to_be_visible()
    page.locator("#token-given").fill("secret")
    page.keyboard.press("Enter")
    counts(page, "#uses-list li", 6)
    playwright.expect(page.locator("#token")).to_be_hidden()
    page.reload()
    counts(page, "#uses-list li", 6)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_has_room_for_every_view_in_light_and_dark(served, visit, scheme):
    page = visit(served.url, viewport={"width": 360, "height": 640}, color_scheme=scheme)
    for name in VIEWS:
        view(page, name)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    paper, ink = (
        page.evaluate(f"getComputedStyle(document.body).{name}")
        for name in ("backgroundColor", "color")
    )
    assert (brightness(paper) > brightness(ink)) == (scheme == "light")


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_the_uses_are_asked_for_once_while_nothing_changes(served, visit):
    asked = []
    page = visit("about:blank")
    page.on("request", lambda request: asked.append((request.url, request.post_data)))
    page.goto(served.url)
    counts(page, "#uses-list li", 6)
    for name in [*VIEWS, "Uses"]:
        view(page, name)
    page.locator("#uses-layer").fill("1")
    page.wait_for_load_state("networkidle")
    bodies = [json.loads(body) for url, body in asked if url.endswith("/contexts")]
    assert [len(body["texts"]) for body in bodies] == [6]
    assert {urlsplit(url).netloc for url, _ in asked} == {urlsplit(served.url).netloc}
