// Raw text to sentences of words, as elmokit's tokenizers do it in Python (elmokit/tokenizers.py).

const WHITE_CHARACTERS = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a" +
  "\\u2028\\u2029\\u202f\\u205f\\u3000"; // as Python's \s, which JavaScript's differs from
const WHITE = `[${WHITE_CHARACTERS}]`;
const SPACES = new RegExp(`${WHITE}+`, "gu");
const CHINESE_END = /[。！？｡]+[”’」』）》】]*/gu;

// A function from a text to its sentences, arrays of words. The settings are those of a file that
// `elmo page` writes: the kind of tokenizer, and for Moses its language, character classes and
// abbreviations.
export function createTokenizer(settings) {
  const { kind } = settings;
  if (kind === "spaces") {
    return (text) => nonEmpty(text.split("\n").map((line) => line.match(/[^ \t\r\n]+/gu) ?? []));
  }
  if (kind === "characters") {
    return (text) => nonEmpty(chineseSentences(text).map((own) => [...withoutSpace(own)]));
  }
  if (kind === "icu") return createSegmenter();
  const tokenize = createMoses(settings);
  return (text) =>
    nonEmpty(
      splitSentences(text, settings.sentences).map((sentence) =>
        tokenize((sentence.match(/[^ \t\r\n]+/gu) ?? []).join(" ")),
      ),
    );
}

const nonEmpty = (sentences) => sentences.filter((words) => words.length);
const withoutSpace = (text) => text.replace(SPACES, "");
const words = (text) => text.split(SPACES).filter(Boolean);

function chineseSentences(text) {
  const ended = text.replace(CHINESE_END, (end) => `${end}\n`);
  return ended.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/u);
}

function createSegmenter() {
  const [byWord, bySentence] = ["word", "sentence"].map(
    (granularity) => new Intl.Segmenter("und", { granularity }),
  );
  const segments = (segmenter, text) => [...segmenter.segment(text)].map(({ segment }) => segment);
  return (text) =>
    nonEmpty(
      segments(bySentence, text).map((sentence) =>
        segments(byWord, sentence).filter((word) => withoutSpace(word)),
      ),
    );
}

// A sentence ends at . ! ? unless a lower-case letter follows or the stop is that of an
// abbreviation or an initial, and at every Chinese 。！？.
function splitSentences(text, { abbreviations, beforeNumbers }) {
  const [known, numeric] = [new Set(abbreviations), new Set(beforeNumbers)];
  return text.split(new RegExp(`\\n${WHITE}*\\n`, "u")).flatMap((paragraph) => {
    const ends = [...paragraph.matchAll(CHINESE_END)].map((match) => match.index + match[0].length);
    const stops = new RegExp(
      `(?<![.!?…؟।॥])([.!?…؟।॥]+)(["'”’»)\\]]*${WHITE}+)(["'“‘«(\\[¿¡]*[\\p{L}\\p{N}_])`,
      "gu",
    );
    for (const match of paragraph.matchAll(stops)) {
      const [, stop, space, next] = match;
      const letter = [...next].at(-1);
      if (/\p{Lowercase}/u.test(letter)) continue;
      const before = paragraph.slice(Math.max(0, match.index - 40), match.index);
      if (stop === "." && isAbbreviation(before, letter, known, numeric)) continue;
      ends.push(match.index + stop.length + space.length);
    }
    ends.sort((a, b) => a - b);
    return [0, ...ends].map((start, index) => paragraph.slice(start, ends[index]));
  });
}

function isAbbreviation(before, nextLetter, abbreviations, beforeNumbers) {
  const word = before.split(new RegExp(`${WHITE}|[(\\["“]`, "u")).at(-1).replace(/^['‘]+/u, "");
  if (beforeNumbers.has(word)) return /\p{N}/u.test(nextLetter);
  const part = word.split(".").at(-1);
  return abbreviations.has(word) || ([...part].length === 1 && /\p{L}/u.test(part));
}

// Moses' normalization of punctuation and its tokenizer, without escapes: substitutions over a
// whole sentence, one after another.
function createMoses({ language, classes, prefixes, numericPrefixes }) {
  const { alnum, alpha, number, lower } = classes;
  const rule = (pattern, replacement) => [new RegExp(pattern, "gu"), replacement];
  const normalize = normalizationRules(language, rule);
  const separate = [
    rule(`[^${alnum}${WHITE_CHARACTERS}.'\`,\\-]`, " $& "),
    [/\.{2,}/gu, (dots, at, all) =>
      ` ${"DOT".repeat(dots.length)}MULTI${at + dots.length < all.length ? " " : ""}`],
    rule(`([^${number}]),`, "$1 , "), // commas, unless within numbers
    rule(`,([^${number}])`, " , $1"),
    rule(`([${number}]),$`, "$1 , "),
    ...apostropheRules(language, alpha, number, rule),
  ];
  const inClass = (characters) => new RegExp(`[${characters}]`, "u");
  const [isAlpha, isLower] = [inClass(alpha), inClass(lower)];
  const [kept, keptBeforeNumbers] = [new Set(prefixes), new Set(numericPrefixes)];

  // A full stop belongs to the abbreviation before it; any other is a word of its own.
  const splitStop = (token, index, tokens) => {
    const prefix = token.slice(0, -1);
    if (!token.endsWith(".") || !prefix) return token;
    const next = tokens[index + 1] ?? "";
    const stays = (prefix.includes(".") && isAlpha.test(prefix)) ||
      (kept.has(prefix) && !keptBeforeNumbers.has(prefix)) ||
      (next && isLower.test([...next][0])) ||
      (keptBeforeNumbers.has(prefix) && /^[0-9]/u.test(next));
    return stays ? token : `${prefix} .`;
  };

  return (sentence) => {
    const apply = (text, [pattern, replacement]) => text.replace(pattern, replacement);
    let text = strip(normalize.reduce(apply, sentence));
    text = strip(text.replace(SPACES, " ").replace(/[\0-\x1f]/gu, ""));
    text = words(separate.reduce(apply, text)).map(splitStop).join(" ");
    text = text.replace(/\.' ?$/u, " . ' ");
    text = text.replace(/(?:DOT)+MULTI/gu, (dots) => ".".repeat((dots.length - 5) / 3));
    return words(text);
  };
}

const strip = (text) => text.replace(new RegExp(`^${WHITE}+|${WHITE}+$`, "gu"), "");

function normalizationRules(language, rule) {
  const quotes = {
    en: [rule('"([,.]+)', '$1"')],
    ...Object.fromEntries(["de", "es", "fr"].map((code) => [
      code, [rule(',"', '",'), rule(`(\\.+)"(${WHITE}*[^<])`, '"$1$2')],
    ])),
  };
  const decimal = ["de", "es", "cz", "cs", "fr"].includes(language) ? "," : ".";
  return [
    rule("\\r", ""), rule("\\(", " ("), rule("\\)", ") "), rule(" +", " "),
    rule("\\) ([.!:?;,])", ")$1"), rule("\\( ", "("), rule(" \\)", ")"),
    rule("(\\p{Nd}) %", "$1%"), rule(" :", ":"), rule(" ;", ";"),
    rule("`", "'"), rule("''", ' " '),
    rule("[„“”]", '"'), rule("–", "-"), rule("—", " - "), rule(" +", " "), rule("´", "'"),
    rule("([a-zA-Z])‘([a-zA-Z])", "$1'$2"), rule("([a-zA-Z])’([a-zA-Z])", "$1'$2"),
    rule("[‘‚’]", "'"), rule("''", '"'), rule("…", "..."),
    rule("\\xa0«\\xa0|«\\xa0?", '"'), rule("\\xa0»\\xa0?|»", '"'),
    rule("\\xa0%", "%"), rule("nº\\xa0", "nº "), rule("\\xa0:", ":"), rule("\\xa0ºC", " ºC"),
    rule("\\xa0cm", " cm"), rule("\\xa0\\?", "?"), rule("\\xa0!", "!"), rule("\\xa0;", ";"),
    rule(",\\xa0", ", "), rule(" +", " "),
    ...(quotes[language] ?? []),
    rule("(\\p{Nd})\\xa0(\\p{Nd})", `$1${decimal}$2`),
  ];
}

function apostropheRules(language, alpha, number, rule) {
  if (language === "en") {
    return [
      rule(`([^${alpha}])'([^${alpha}])`, "$1 ' $2"),
      rule(`([^${alpha}${number}])'([${alpha}])`, "$1 ' $2"),
      rule(`([${alpha}])'([^${alpha}])`, "$1 ' $2"),
      rule(`([${alpha}])'([${alpha}])`, "$1 '$2"),
      rule(`([${number}])'(s)`, "$1 '$2"),
    ];
  }
  if (language === "fr" || language === "it") {
    return [
      rule(`([^${alpha}])'([^${alpha}])`, "$1 ' $2"),
      rule(`([^${alpha}])'([${alpha}])`, "$1 ' $2"),
      rule(`([${alpha}])'([^${alpha}])`, "$1 ' $2"),
      rule(`([${alpha}])'([${alpha}])`, "$1' $2"),
    ];
  }
  return [rule("'", " ' ")];
}
