"""The page in a browser: its views, the keyboard, links, errors, phones and the dark mode.

What a `site` shows is tested with both back ends: the service, and the model in the browser.
"""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from elmokit.search.index import Index
from elmokit.server.app import listening
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits
from elmokit.server.schemas import LearnedLayerWeights
from elmokit.server.static_page import write_page
from static_host import StaticHost

pytestmark = pytest.mark.full

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright (pip install playwright), which is not there"
)
VIEWS = ["Contexts", "Similarity", "Predict", "Layer weights", "Search"]
PAINTED = """canvas => {
    const gl = canvas.getContext("webgl");
    const pixels = new Uint8Array(4 * canvas.width * canvas.height);
    gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    return pixels.filter((value, index) => index % 4 === 3 && value).length;
}"""
SHARES = "bars => bars.map(bar => parseFloat(bar.style.getPropertyValue('--share')))"
TIMEOUT = 30_000  # milliseconds


@pytest.fixture(scope="module", params=["http", "browser"])
def site(request):
    """The page with each of its back ends."""
    return request.getfixturevalue("service" if request.param == "http" else "static_site")


def open_view(page, name):
    page.get_by_role("tab", name=name).click()


def expect_text(page, selector, text):
    playwright.expect(page.locator(selector)).to_contain_text(text, timeout=TIMEOUT)


def expect_count(page, selector, number):
    playwright.expect(page.locator(selector)).to_have_count(number, timeout=TIMEOUT)


def wait_until_answered(page):
    expect_count(page, "[role=tabpanel]:not([hidden])[aria-busy=true]", 0)


def wait_for_address(page, part):
    page.wait_for_function("part => decodeURIComponent(location.hash).includes(part)", arg=part)


def test_the_occurrences_of_a_word_part_layer_by_layer(site, visit):
    page = visit(site.url)
    expect_count(page, "#contexts-list li", 8)
    expect_text(page, "#contexts-axes", "Layer 2: the axes show")
    numbers = page.locator("#contexts-numbers span").count()
    assert numbers > 3
    painted = page.locator("#contexts-plot").evaluate(PAINTED)
    page.locator("#contexts-layer").focus()
    page.keyboard.press("ArrowLeft")
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("1")
    page.keyboard.press("ArrowLeft")
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("0")
    expect_text(page, "#contexts-axes", "Layer 0: all occurrences have the same vector")
    expect_count(page, "#contexts-numbers span", 1)
    assert 0 < 3 * page.locator("#contexts-plot").evaluate(PAINTED) < painted
    page.locator("#contexts-layer").fill("1.5")
    expect_text(page, "#contexts-layer-shown", "1.5")
    wait_for_address(page, "contexts-layer=1.5")


def test_the_page_opens_with_an_animation_from_layer_0_once(site, visit):
    page = visit(site.url, reduced_motion="no-preference")
    expect_count(page, "#contexts-list li", 8)
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("0")
    assert "contexts-layer" not in page.url
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("2", timeout=TIMEOUT)
    expect_text(page, "#contexts-axes", "Layer 2")
    page.locator("#contexts-texts").fill("A bank lent\nThe banks")
    expect_count(page, "#contexts-list li", 2)
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("2")


def test_moving_the_slider_ends_the_animation(site, visit):
    page = visit(site.url, reduced_motion="no-preference")
    expect_count(page, "#contexts-list li", 8)
    page.locator("#contexts-layer").fill("1")
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("1")
    page.wait_for_timeout(500)
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text("1")


def test_examples_fill_the_fields_of_their_view(site, visit):
    page = visit(site.url)
    page.locator("#contexts-examples button").nth(1).click()
    playwright.expect(page.locator("#contexts-word")).to_have_value("play")
    expect_text(page, "#contexts-list li >> nth=0", "The children play")
    open_view(page, "Search")
    chosen = page.locator("#search-examples button").nth(1)
    chosen.press("Enter")
    playwright.expect(page.locator("#search-query")).to_have_value(chosen.inner_text())


def test_the_model_is_named(site, language_model, visit):
    page = visit(site.url)
    expect_text(page, "#model-name", Path(language_model.source).name)
    expect_text(page, "#model-size", "3 layers")


def test_a_point_shows_its_sentence_by_mouse_and_by_keyboard(site, visit):
    page = visit(site.url)
    expect_count(page, "#contexts-list li", 8)
    page.locator("#contexts-texts").fill("A bank lent\nThe banks\nmy own bank too")
    expect_count(page, "#contexts-list li", 3)
    expect_count(page, "#contexts-numbers span", 3)
    box = page.locator("#contexts-plot").bounding_box()
    for number in page.locator("#contexts-numbers span").all():
        x, y = number.evaluate("own => [own.style.left, own.style.top].map(parseFloat)")
        page.mouse.move(box["x"] + x + 2, box["y"] + y - 2)
        sentence = page.locator("#contexts-list li").nth(int(number.inner_text()) - 1)
        expect_text(page, "#contexts-selected", sentence.inner_text().strip())
    page.locator("#contexts-plot").focus()
    page.keyboard.press("ArrowRight")
    expect_text(page, "#contexts-selected", "A bank lent")
    expect_text(page, "#contexts-selected mark", "bank")
    page.keyboard.press("ArrowLeft")
    expect_text(page, "#contexts-selected", "my own bank too")
    page.locator("#contexts-list li").nth(1).focus()
    expect_text(page, "#contexts-list li.selected", "The banks")
    wait_for_address(page, "contexts-selected=1")


def test_without_webgl_the_occurrences_are_still_listed(site, visit):
    page = visit("about:blank")
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(site.url)
    expect_count(page, "#contexts-list li", 8)
    expect_text(page, "#contexts", "This browser has no WebGL")
    page.locator("#contexts-list li").nth(2).focus()
    expect_text(page, "#contexts-selected", "She borrowed the money")


def test_labels_before_tabs_name_the_groups(site, visit):
    page = visit(site.url)
    page.locator("#contexts-texts").fill("money\tA bank lent\nriver\tThe bank of it\nmoney\tbanks")
    expect_count(page, "#contexts-list li", 3)
    expect_text(page, "#contexts-groups", "moneyriver")


def test_the_error_about_a_missing_word_goes_away(site, visit):
    page = visit(site.url, refusals=True)
    page.locator("#contexts-word").fill("zebra")
    expect_text(page, "#contexts-error", "'zebra' does not occur in the texts")
    expect_count(page, "#contexts-list li", 0)
    page.locator("#contexts-word").fill("")
    playwright.expect(page.locator("#contexts-error")).to_be_hidden()
    page.locator("#contexts-word").fill("bank")
    expect_count(page, "#contexts-list li", 8)


def test_the_similarities_of_two_sentences_change_with_the_layer(site, visit):
    page = visit(site.url)
    open_view(page, "Similarity")
    page.locator("#similarity-first").fill("a bank lent")
    page.locator("#similarity-second").fill("the bank")
    expect_count(page, "#similarity-table tbody tr", 3)
    expect_count(page, "#similarity-table thead th", 3)
    high = page.locator("#similarity-table tbody").inner_text()
    page.locator("#similarity-layer").fill("0")
    expect_text(page, "#similarity-layer-shown", "0")
    assert page.locator("#similarity-table tbody").inner_text() != high
    cell = page.locator("#similarity-table tbody tr").nth(1).locator("td").nth(1)
    assert cell.inner_text() == "1.00"  # layer 0 depends on the spelling only
    assert cell.evaluate("cell => getComputedStyle(cell).backgroundColor") != "rgba(0, 0, 0, 0)"


def test_words_are_predicted_while_one_types_and_inserted_by_a_click(site, visit):
    page = visit(site.url)
    open_view(page, "Predict")
    page.locator("#predict-text").fill("")
    page.locator("#predict-text").press_sequentially("word1 word2", delay=10)
    expect_count(page, "#predict-lists h2", 2)
    expect_count(page, "#predict-lists .bar:enabled", 12)
    expect_count(page, "#predict-lists .bar:disabled", 2)  # start and end of sentence
    assert "%" in page.locator("#predict-lists .bar").first.inner_text()
    shares = page.locator("#predict-lists .bar").evaluate_all(SHARES)
    percents = [
        float(text.split()[-2]) for text in page.locator("#predict-lists .bar").all_inner_texts()
    ]
    assert max(shares) == 100  # of both lists
    expected = [100 * percent / max(percents) for percent in percents]
    assert shares == pytest.approx(expected, abs=0.1 + 10 / max(percents))
    likeliest = page.locator("#predict-lists .bar:enabled").first
    word = likeliest.locator("span").first.inner_text()
    likeliest.click()
    playwright.expect(page.locator("#predict-text")).to_have_value(f"word1 word2 {word}")
    page.locator("#predict-text").fill("___ word1 ___ word2")
    expect_text(page, "#predict-lists", "Gap 2")
    second = page.locator("#predict-lists > div").nth(1).locator(".bar").first
    word = second.locator("span").first.inner_text()
    second.press("Enter")
    playwright.expect(page.locator("#predict-text")).to_have_value(f"___ word1 {word} word2")


def test_layer_weights_are_shown(site, visit):
    page = visit(site.url)
    open_view(page, "Layer weights")
    expect_count(page, "#layer-weights-table tbody tr", 2)
    expect_count(page, "#layer-weights-table td", 6)
    playwright.expect(page.locator("#layer-weights-none")).to_be_hidden()


def test_layer_weights_of_some_layers_or_none_are_shown(start_service, language_model, visit):
    weights = [
        LearnedLayerWeights(task="srl", name=name, position="input", layers=layers, weights=weights)
        for name, layers, weights in [("six", [0, 1, 2], [0.25, 0.5, 0.25]), ("top", [2], [1.0])]
    ]
    two_weights = visit(start_service(language_model, layer_weights=weights).url)
    open_view(two_weights, "Layer weights")
    expect_text(two_weights, "#layer-weights-table tbody", "srlsix, input")
    expect_text(two_weights, "#layer-weights-table tbody", "0.50")
    expect_text(two_weights, "#layer-weights-table tbody tr:nth-child(2) td:nth-child(4)", "1.00")
    without_weights = visit(start_service(language_model).url)
    open_view(without_weights, "Layer weights")
    playwright.expect(without_weights.locator("#layer-weights-none")).to_be_visible()


def test_results_have_highlighted_words(site, visit):
    page = visit(site.url)
    open_view(page, "Search")
    page.locator("#search-query").fill("the bank of a river")
    expect_count(page, "#search-results li", 3)
    expect_text(page, "#search-results li >> nth=0", "text.txt, line")
    assert page.locator("#search-results mark").count() >= 3


@pytest.fixture(params=["http", "browser"])
def start_site(request, start_service, language_model, tmp_path):
    """A function from an index to the address of a page that searches it, with each back end."""
    with ExitStack() as exit_stack:

        def start(index):
            if request.param == "http":
                return start_service(language_model, index=index).url
            onnxruntime = request.getfixturevalue("onnxruntime")
            folder = tmp_path / "site"
            write_page(language_model, folder, index=index, onnxruntime=onnxruntime)
            return exit_stack.enter_context(StaticHost(folder)).url

        yield start


def test_the_mode_and_the_files_of_a_search_are_switched(
    start_site, language_model, visit, tmp_path
):
    for name, text in (("a", "A bank lent money.\nBanks.\n"), ("b", "The bank of a river.\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    with Index.build(tmp_path / "i", files, language_model) as index:
        page = visit(start_site(index), refusals=True)
        open_view(page, "Search")
        page.locator("#search-query").fill("river banks")
        results = page.locator("#search-results li")
        expect_text(page, "#search-results li >> nth=0", "The bank of a river.")
        assert re.search(r"\(BM25 .* · words .* · cosine .*\)", results.first.inner_text())
        assert results.first.locator("mark:not(.near)").all_inner_texts() == ["bank", "river"]
        page.locator("#search-mode").select_option("lexical")
        playwright.expect(results.first).not_to_contain_text("cosine")
        expect_count(page, "#search-results li", 3)
        expect_count(page, "#search-results mark.near", 0)
        wait_for_address(page, "search-mode=lexical")
        page.locator("#search-mode").select_option("semantic")
        playwright.expect(results.first).not_to_contain_text("BM25")
        page.locator("#search-file").fill("*b.txt")
        expect_count(page, "#search-results li", 1)
        page.locator("#search-file").fill("*.pdf")
        expect_text(page, "#search-error", "no file of the index matches *.pdf")
        page.locator("#search-file").fill("")
        page.locator("#search-mode").select_option("lexical")
        page.locator("#search-query").fill("owls")
        playwright.expect(page.locator("#search-none")).to_be_visible()


def test_occurrences_of_a_word_of_the_query_are_found(
    start_service, language_model, visit, tmp_path
):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    built = Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], language_model, unit="words")
    with built as index:
        page = visit(start_service(language_model, index=index).url, refusals=True)
        open_view(page, "Search")
        playwright.expect(page.locator("#search-mode-field")).to_be_hidden()
        expect_text(page, "#search-error", "an index of words; give a word of the text")
        page.locator("#search-query").fill("The bank of a river .")
        page.locator("#search-word").fill("bank")
        expect_count(page, "#search-results li", 2)
        expect_count(page, "#search-results mark", 2)
        expect_text(page, "#search-results li >> nth=0", "The bank of a river.")
        wait_for_address(page, "search-word=bank")


def test_without_an_index_the_page_says_how_to_make_one(start_service, language_model, visit):
    page = visit(start_service(language_model).url, refusals=True)
    open_view(page, "Search")
    expect_text(page, "#search-error", "elmo index build")


def test_the_tabs_work_by_keyboard(site, visit):
    page = visit(site.url)
    page.keyboard.press("Tab")
    for key, name in [
        ("ArrowRight", "Similarity"), ("End", "Search"), ("ArrowRight", "Contexts"),
        ("ArrowLeft", "Search"), ("Home", "Contexts"),
    ]:  # fmt: skip
        page.keyboard.press(key)
        tab = page.get_by_role("tab", name=name)
        playwright.expect(tab).to_have_attribute("aria-selected", "true")
        playwright.expect(tab).to_be_focused()
        playwright.expect(page.get_by_role("tabpanel")).to_have_count(1)
    page.keyboard.press("Tab")
    playwright.expect(page.locator("#contexts-word")).to_be_focused()


def test_a_link_shows_what_its_sender_saw(site, visit):
    page = visit(site.url, refusals=True)  # of a word that is not in the texts, if one is slow
    page.locator("#contexts-word").fill("bänk & co=#")
    page.locator("#contexts-word").fill("a")
    page.locator("#contexts-texts").fill("a cat\nan owl & a dog = 100 %\n+ a # hash")
    expect_count(page, "#contexts-list li", 4)
    page.locator("#contexts-list li").nth(2).focus()
    page.locator("#contexts-layer").fill("1.25")
    wait_for_address(page, "contexts-selected=2")
    wait_for_address(page, "contexts-layer=1.25")
    other = visit(page.url)
    expect_count(other, "#contexts-list li", 4)
    for name in ("contexts-word", "contexts-texts", "contexts-layer"):
        value = page.locator(f"#{name}").input_value()
        playwright.expect(other.locator(f"#{name}")).to_have_value(value)
    expect_text(
        other, "#contexts-selected", page.locator("#contexts-selected").inner_text().strip()
    )
    pictures = [
        each.locator("#contexts-plot").evaluate("c => c.toDataURL()") for each in (page, other)
    ]
    assert pictures[0] == pictures[1]
    other.evaluate("location.hash = 'view=predict&predict-text=word3&nonsense=1'")
    playwright.expect(other.locator("#predict-text")).to_have_value("word3")
    expect_count(other, "#predict-lists .bar:enabled", 12)


def test_a_link_followed_while_the_address_is_changing_wins(site, visit):
    page = visit(site.url)
    expect_count(page, "#contexts-list li", 8)
    page.evaluate("""() => {
        const word = document.getElementById("contexts-word");
        word.value = "the";
        word.dispatchEvent(new Event("input"));
        location.hash = "view=predict&predict-text=word3";
    }""")
    playwright.expect(page.locator("#predict-text")).to_have_value("word3")
    page.locator("#predict-text").fill("word4")
    wait_for_address(page, "predict-text=word4")


@pytest.mark.parametrize("layer", ["-1", "-Infinity", "7", "none"])
def test_a_link_to_a_layer_that_is_not_there_shows_one_that_is(site, visit, layer):
    shown = "2" if layer == "7" else "0"
    page = visit(f"{site.url}/#contexts-layer={layer}&similarity-layer={layer}")
    expect_count(page, "#contexts-list li", 8)
    playwright.expect(page.locator("#contexts-layer-shown")).to_have_text(shown)
    expect_text(page, "#contexts-axes", f"Layer {shown}")
    open_view(page, "Similarity")
    expect_count(page, "#similarity-table tbody tr", 6)
    playwright.expect(page.locator("#similarity-layer-shown")).to_have_text(shown)


def test_a_lost_service_is_reported_until_it_is_back(language_model, visit):
    def start(port):
        resources = AppResources(Limits())
        resources.open(language_model)
        return listening(resources, port=port)

    with start(0) as url:
        page = visit(url, refusals=True)
        expect_count(page, "#contexts-list li", 8)
    page.locator("#contexts-texts").fill("a bank\nthe bank")
    expect_text(
        page, "#contexts-error", "The service does not answer; this page asks again until it does."
    )
    expect_count(page, "#contexts-list li", 8)  # what was there stays
    with start(urlsplit(url).port):
        expect_count(page, "#contexts-list li", 2)
        playwright.expect(page.locator("#contexts-error")).to_be_hidden()


def test_a_busy_service_gets_the_request_again(start_service, language_model, visit):
    small_service = start_service(language_model, max_queued=1)
    page = visit(small_service.url, refusals=True)
    expect_count(page, "#contexts-list li", 8)
    requests = []
    page.on("request", lambda request: requests.append(request.url.endswith("/contexts")))
    with small_service.model_busy():
        page.locator("#contexts-texts").fill("a bank\nthe bank")
        expect_text(page, "#contexts-error", "1 requests are waiting, the limit is 1")
        assert sum(requests) == 1
    expect_count(page, "#contexts-list li", 2)
    playwright.expect(page.locator("#contexts-error")).to_be_hidden()


def test_a_token_is_asked_for_once(start_service, language_model, visit):
    protected = start_service(language_model, token="secret")
    page = visit(protected.url, refusals=True)
    expect_text(page, "#contexts-error", "the token is missing or wrong")
    page.locator("#token-input").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    playwright.expect(page.locator("#token-form")).to_be_visible()
    page.locator("#token-input").fill("secret")
    page.keyboard.press("Enter")
    expect_count(page, "#contexts-list li", 8)
    playwright.expect(page.locator("#token-form")).to_be_hidden()
    page.reload()
    expect_count(page, "#contexts-list li", 8)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_a_phone_in_light_and_dark(site, visit, scheme):
    page = visit(site.url, viewport={"width": 360, "height": 640}, color_scheme=scheme)
    for name in VIEWS:
        open_view(page, name)
        wait_until_answered(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    paper, ink = (
        page.evaluate(f"getComputedStyle(document.body).{name}")
        for name in ("backgroundColor", "color")
    )
    assert (brightness(paper) > brightness(ink)) == (scheme == "light")


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_the_same_request_is_not_sent_again(service, visit):
    requests = []
    page = visit("about:blank")
    page.on("request", lambda request: requests.append((request.url, request.post_data)))
    page.goto(service.url)
    expect_count(page, "#contexts-list li", 8)
    for name in [*VIEWS, "Contexts"]:
        open_view(page, name)
    page.locator("#contexts-layer").fill("1")
    page.wait_for_load_state("networkidle")
    bodies = [json.loads(body) for url, body in requests if url.endswith("/contexts")]
    assert [len(body["texts"]) for body in bodies] == [8]
    assert {urlsplit(url).netloc for url, _ in requests} == {urlsplit(service.url).netloc}
