// Against elmokit's numbers. `tests/test_elmokit_js.py` writes the folder ELMOKIT_EXPECTED, and
// runs this file.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { deflateSync } from "node:zlib";

import { cosine, ElmokitError, load, splitSentences, splitWords } from "../elmokit.js";
import { readMetadata } from "../onnx_metadata.js";
import { createIndexer, indexWords } from "../words.js";

const folder = process.env.ELMOKIT_EXPECTED;
const skip = folder ? false : "ELMOKIT_EXPECTED names no folder; pytest tests/test_elmokit_js.py";
const bytesOf = (name) => readFileSync(`${folder}/${name}`);
const expectedOf = (name) => JSON.parse(readFileSync(`${folder}/${name}.json`, "utf-8"));

function assertClose(found, expected, tolerance, what) {
  assert.equal(found.length, expected.length, what);
  expected.forEach((number, index) => {
    const difference = Math.abs(found[index] - number);
    assert.ok(difference <= tolerance, `${what}, number ${index}: ${found[index]}, not ${number}`);
  });
}

function assertPredictions(found, expected, tolerance) {
  assert.deepEqual(found.map(({ word }) => word), expected.map(([word]) => word));
  assertClose(
    found.map(({ probability }) => probability), expected.map(([, number]) => number), tolerance,
    "probabilities",
  );
}

test("words have elmokit's ids", { skip }, () => {
  for (const { name, metadata, words, rows } of expectedOf("ids")) {
    const indexer = createIndexer(metadata);
    const ids = indexer.encode(words);
    const expected = new Int32Array(new Uint8Array(bytesOf(rows)).buffer);
    assert.equal(ids.length, expected.length, name);
    const { numColumns } = indexer;
    words.forEach((word, row) => {
      const place = [row * numColumns, (row + 1) * numColumns];
      const what = `${name}: ${JSON.stringify(word)}`;
      assert.deepEqual(ids.slice(...place), expected.slice(...place), what);
    });
  }
});

test("batches are elmokit's", { skip }, () => {
  for (const { sentences, types, words } of expectedOf("batches")) {
    const batch = indexWords(sentences);
    assert.deepEqual(batch.types, types);
    assert.deepEqual([...batch.words], words.flat());
    assert.equal(batch.numSteps, words[0].length);
  }
});

for (const name of skip ? [] : expectedOf("models")) {
  describe(name, () => {
    const { sentences, layers, encoded, asked, scores, info, tolerance } = expectedOf(name);
    let model;
    before(async () => {
      model = await load(bytesOf(`${name}.onnx`), { tokensPerBatch: 40 });
    });
    after(() => model.release());

    test("facts", () => {
      for (const [fact, value] of Object.entries(info)) assert.deepEqual(model.info[fact], value);
    });

    test("every vector of every layer", async () => {
      const vectors = await model.embed(sentences);
      assert.equal(vectors.length, sentences.length);
      const numbers = new Float32Array(new Uint8Array(bytesOf(layers)).buffer);
      let place = 0;
      vectors.forEach((found, index) => {
        assert.deepEqual([found.layers, found.words], [model.info.layers, sentences[index].length]);
        const expected = numbers.subarray(place, (place += found.data.length));
        if (tolerance) {
          assertClose(found.data, expected, tolerance, `sentence ${index}`);
          return;
        }
        for (let start = 0; start < expected.length; start += found.dim) {
          const end = start + found.dim;
          const pair = [found.data, expected].map((data) => data.subarray(start, end));
          assert.ok(cosine(...pair) >= 0.999, `sentence ${index}: ${cosine(...pair)}`);
        }
      });
      assert.equal(place, numbers.length);
    });

    test("texts in every pooling and choice of layers", async () => {
      for (const { options, texts, vectors } of encoded) {
        const found = await model.encode(texts, options);
        assert.equal(found.length, vectors.length);
        found.forEach((vector, index) => {
          assertClose(vector, vectors[index], tolerance, JSON.stringify(options));
        });
      }
    });

    test("words after, before and in gaps of a text", async () => {
      for (const { text, direction, k, words } of asked) {
        if (direction === "fill") {
          const gaps = await model.fill(text, k);
          assert.equal(gaps.length, words.length);
          gaps.forEach((gap, index) => assertPredictions(gap, words[index], 1e-4));
        } else {
          const ask = direction === "forward" ? "nextWords" : "previousWords";
          assertPredictions(await model[ask](text, k), words, 1e-4);
        }
      }
      if (scores.length) assertClose(await model.score(sentences), scores, 1e-3, "scores");
    });

    test("calls at the same time", async () => {
      const results = await Promise.all(
        Array.from({ length: 5 }, () => model.embed(sentences.slice(0, 2), { layers: "top" })),
      );
      for (const result of results) assert.deepEqual(result, results[0]);
    });
  });
}

test("mistakes are named", { skip }, async () => {
  const [name] = expectedOf("models");
  const bytes = bytesOf(`${name}.onnx`);
  const model = await load(bytes);
  const cases = [
    [() => model.embed("I ate"), /expected a list of lists of words/],
    [() => model.embed([["I"], "ate"]), /sentence 1 is a string \(ate\), expected a list of words/],
    [() => model.embed([["I", 3]]), /sentence 0: word 1 is a number \(3\), expected a string/],
    [() => model.embed([["I"]], { layers: 9 }), /layers is 9, expected "all", "top"/],
    [() => model.encode(["I"], { pooling: "min" }), /pooling is "min", expected one of mean, idf/],
    [() => model.nextWords("I", 0), /k is 0, expected 1 or more words/],
    [() => model.fill("I ate"), /the text has no gap; write ___/],
    [() => load(new Uint8Array(100)), /not a model for elmokit-js; expected a file that `elmo/],
    [() => load(new TextEncoder().encode("<!DOCTYPE html>")), /not a model for elmokit-js/],
    [() => load(bytes.subarray(0, bytes.length / 2)), /not a model for elmokit-js/],
    [() => load("model.onnx"), /model\.onnx: cannot be fetched/],
    [() => load(bytes, { runtime: "./no.mjs" }), /onnxruntime-web cannot be loaded/],
  ];
  for (const [call, message] of cases) await assert.rejects(call, { message });
  assert.throws(() => cosine([1], [1, 2]), { message: /1 and of 2 dimensions/ });
  assert.ok(new ElmokitError("x") instanceof Error);
});

test("a file comes with its progress, or not at all", { skip }, async () => {
  const [name] = expectedOf("models");
  const bytes = bytesOf(`${name}.onnx`);
  const server = createServer((request, response) => {
    if (request.url === "/missing") {
      response.writeHead(404).end();
      return;
    }
    const cut = request.url === "/cut";
    if (request.url === "/packed") { // as from another origin that does not say so
      const packed = deflateSync(bytes);
      response.writeHead(200, { "content-length": packed.length, "content-encoding": "deflate" });
      response.end(packed);
      return;
    }
    response.writeHead(200, { "content-length": bytes.length });
    response.write(bytes.subarray(0, bytes.length / 2));
    const rest = bytes.subarray(bytes.length / 2);
    setTimeout(() => (cut ? response.destroy() : response.end(rest)), 50);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  try {
    const steps = [];
    const model = await load(`${url}/model`, { onProgress: (step) => steps.push(step) });
    assert.ok(steps.length > 1);
    assert.deepEqual(steps.at(-1), { loaded: bytes.length, total: bytes.length });
    assert.equal(model.info.bytes, bytes.length);
    const received = globalThis.fetch;
    globalThis.fetch = async (...values) => {
      const response = await received(...values);
      const headers = new Headers(response.headers);
      headers.delete("content-encoding");
      return new Response(response.body, { headers });
    };
    const unknown = [];
    try {
      await load(`${url}/packed`, { onProgress: (step) => unknown.push(step) });
    } finally {
      globalThis.fetch = received;
    }
    assert.ok(unknown.every(({ loaded, total }) => total === null || loaded <= total));
    assert.deepEqual(unknown.at(-1), { loaded: bytes.length, total: null });
    await assert.rejects(load(`${url}/missing`), { message: /the server answered 404/ });
    await assert.rejects(load(`${url}/cut`));
    const stop = new AbortController();
    const loading = load(`${url}/model`, { signal: stop.signal });
    stop.abort();
    await assert.rejects(loading, { name: "AbortError" });
  } finally {
    server.close();
  }
});

test("raw text is split into sentences and words", () => {
  assert.deepEqual(splitSentences("Dogs bark. Cats don't! “Why?” she asked.\nNobody knows…"), [
    "Dogs bark.", "Cats don't!", "“Why?” she asked.", "Nobody knows…",
  ]);
  assert.deepEqual(splitWords("Mr. Smith’s well-known U.S. bank paid 1,234.50 – in the 19th c."), [
    "Mr.", "Smith", "'s", "well-known", "U.S.", "bank", "paid", "1,234.50", "-", "in", "the", "19th",
    "c", ".",
  ]);
  assert.deepEqual(splitWords("the ___ sat ..."), ["the", "___", "sat", "..."]);
  assert.deepEqual(splitWords(" \n"), []);
});

test("bytes that are no protobuf have no metadata", () => {
  assert.equal(readMetadata(new Uint8Array([0x3f])), null);
  assert.equal(readMetadata(new Uint8Array([0x3a, 0x7f, 1])), null);
  assert.equal(readMetadata(new Uint8Array(20).fill(255)), null);
  assert.deepEqual({ ...readMetadata(new Uint8Array()) }, {});
});
