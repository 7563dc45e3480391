// Words to ids, as elmokit makes them, and a simple splitter of text.

export const SENTENCE_BEGIN = "<S>", SENTENCE_END = "</S>", UNKNOWN = "<UNK>";

// A byte b has the id b + 1; these are the others.
const BEGIN_SENTENCE = 257, END_SENTENCE = 258, BEGIN_WORD = 259, END_WORD = 260, PAD = 261;

const utf8 = new TextEncoder();

/** The distinct words of sentences, the boundaries first, and where they stand. */
export function indexWords(sentences) {
  const rows = new Map([[SENTENCE_BEGIN, 1], [SENTENCE_END, 2]]);
  const longest = sentences.reduce((length, sentence) => Math.max(length, sentence.length), 0);
  const numSteps = longest + 2;
  const words = new Int32Array(sentences.length * numSteps);
  sentences.forEach((sentence, index) => {
    const start = index * numSteps;
    words[start] = 1;
    sentence.forEach((word, step) => {
      if (!rows.has(word)) rows.set(word, rows.size + 1);
      words[start + step + 1] = rows.get(word);
    });
    words[start + sentence.length + 1] = 2;
  });
  return { types: [...rows.keys()], words, numSteps };
}

/** What turns words into rows of ids for a model with these metadata. */
export function createIndexer(metadata) {
  const maxCharacters = Number(metadata.max_characters);
  if (metadata.ids === "bytes") return new ByteIndexer(maxCharacters);
  if (metadata.ids === "words") return new WordIndexer(JSON.parse(metadata.vocabulary));
  const { lexicon_characters: characters, lexicon_words: words } = metadata;
  return new LexiconIndexer(
    characters && JSON.parse(characters), words && JSON.parse(words), maxCharacters,
  );
}

/** The id of each word; of a word that is listed twice, the later one. */
export class Vocabulary {
  constructor(words, unknown = UNKNOWN) {
    this.words = words;
    this.ids = new Map(words.map((word, id) => [word, id]));
    this.unknownId = this.ids.get(unknown) ?? -1;
  }

  id(word) {
    return this.ids.get(word) ?? this.unknownId;
  }
}

/** Words as UTF-8 bytes: [begin of word, bytes, end of word, padding ...]. */
export class ByteIndexer {
  constructor(maxCharacters) {
    this.numColumns = maxCharacters;
  }

  /** The rows of ids of words, one after the other. */
  encode(words) {
    const rows = new Int32Array(words.length * this.numColumns).fill(PAD);
    words.forEach((word, index) => {
      const row = rows.subarray(index * this.numColumns, (index + 1) * this.numColumns);
      row[0] = BEGIN_WORD;
      if (word === SENTENCE_BEGIN || word === SENTENCE_END) {
        row[1] = word === SENTENCE_BEGIN ? BEGIN_SENTENCE : END_SENTENCE;
        row[2] = END_WORD;
        return;
      }
      const bytes = utf8.encode(withoutSurrogates(word));
      const length = Math.min(bytes.length, this.numColumns - 2);
      for (let place = 0; place < length; place++) row[place + 1] = bytes[place] + 1;
      row[length + 1] = END_WORD;
    });
    return rows;
  }
}

/** Whole words, for word-level models: the id is the word's place in the vocabulary, plus one. */
export class WordIndexer {
  constructor(vocabulary) {
    this.numColumns = 1;
    this.vocabulary = new Vocabulary(vocabulary);
  }

  encode(words) {
    return Int32Array.from(words, (word) => {
      const id = this.vocabulary.id(word);
      if (id < 0) {
        throw new RangeError(
          `${JSON.stringify(word)} is not in the vocabulary, which has no ${UNKNOWN} to stand ` +
          `for it; replace the word, or use a model whose vocabulary has ${UNKNOWN}`,
        );
      }
      return id + 1;
    });
  }
}

const LEXICON_BOUNDARIES = new Map([[SENTENCE_BEGIN, "<bos>"], [SENTENCE_END, "<eos>"]]);

/** Words as in ELMoForManyLangs: the id of the word, if words have ids, then of its characters. */
export class LexiconIndexer {
  constructor(characters, words, maxCharacters) {
    const unknown = "<oov>";
    this.characters = characters && new Vocabulary(characters, unknown);
    this.words = words && new Vocabulary(words, unknown);
    this.maxCharacters = maxCharacters;
    this.numColumns = (words ? 1 : 0) + (characters ? maxCharacters : 0);
  }

  encode(words) {
    const rows = new Int32Array(words.length * this.numColumns);
    words.forEach((word, index) => {
      const boundary = LEXICON_BOUNDARIES.get(word);
      const maxLength = boundary ? undefined : this.maxCharacters - 2;
      const spelled = [...(boundary ?? word)].slice(0, maxLength);
      const text = spelled.join("");
      let place = index * this.numColumns;
      if (this.words) rows[place++] = this.words.id(text) + 1;
      if (!this.characters) return;
      const id = (character) => this.characters.id(character) + 1;
      const characters = text === "<bos>" || text === "<eos>" ? [text] : spelled;
      const row = rows.subarray(place, place + this.maxCharacters).fill(id("<pad>"));
      row[0] = id("<eow>"); // ELMoForManyLangs looked up the begin of a word as its end
      characters.forEach((character, position) => (row[position + 1] = id(character)));
      row[characters.length + 1] = id("<bow>");
    });
    return rows;
  }
}

/** Text without half surrogate pairs, which no UTF-8 can hold; elmokit leaves them out, too. */
function withoutSurrogates(text) {
  return /[\ud800-\udfff]/.test(text) ? text.replace(/\p{Surrogate}/gu, "") : text;
}

const TOKEN = new RegExp(
  [
    // Initials and abbreviations, whose point belongs to them.
    String.raw`(?:\p{L}\.){2,}`,
    String.raw`(?<![\p{L}\p{N}])(?:\p{Lu}|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|v|No)\.(?=\s+\S)`,
    // The ending of a contraction; words and numbers with marks inside.
    String.raw`(?<=\p{L})'\p{L}+`,
    String.raw`\p{N}+(?:[.,:]\p{N}+)+`,
    String.raw`[\p{L}\p{M}\p{N}]+(?:[-.][\p{L}\p{M}\p{N}]+)*`,
    String.raw`\.{2,}|_{3,}`,
    String.raw`\S`,
  ].join("|"),
  "gu",
);
const PLAIN_MARKS = new Map(
  Object.entries({ "‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": " - " }),
);

/**
 * The words and punctuation marks of a sentence, by simple rules; curly quotes and long dashes
 * become plain ones.
 *
 * English models were trained on text that Moses had split; this splits most of it alike. Where it
 * matters, split the text as the model's `info.tokenizer` says, and give lists of words.
 */
export function splitWords(text) {
  const plain = text.replace(/[‘’“”„–—]/g, (mark) => PLAIN_MARKS.get(mark));
  return plain.match(TOKEN) ?? [];
}

/** The sentences of a text: they end with . ! or ? before a space and a capital, or with a line. */
export function splitSentences(text) {
  return text
    .split(/(?<=[.!?…]["'”’)\]]*)\s+(?=["'“‘([]*[\p{Lu}\p{Lt}\p{Lo}\p{N}])|\n+/u)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence);
}
