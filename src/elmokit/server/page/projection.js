// Principal components and clusters of vectors, as elmokit computes them (plots.py and
// word_occurrences.py).

const BLOCK = 8; // vectors that are iterated together to find the first two
const MAX_ITERATIONS = 300, TOLERANCE = 1e-14;
const STARTS = 8, MAX_STEPS = 300; // of k-means

// The planes of layers, each an array of vectors: points on the first two principal components and
// the share of the variance along each. An axis is turned over where that keeps points near the
// layer below.
export function projectLayers(layers) {
  let below = null;
  return layers.map((vectors) => {
    const { points, explainedVariance } = projectPca(vectors);
    for (const axis of [0, 1]) {
      const agreement = sum(points.map((point, row) => point[axis] * (below?.[row][axis] ?? 0)));
      if (agreement < 0) for (const point of points) point[axis] = -point[axis];
    }
    below = points;
    return { points, explained_variance: explainedVariance };
  });
}

// Each component is signed so that its largest weight is positive.
export function projectPca(vectors) {
  const centred = centre(vectors);
  const products = centred.map((row) => Float64Array.from(centred, (other) => dot(row, other)));
  const total = Math.max(sum(products.map((row, index) => row[index])), 1e-12);
  const points = vectors.map(() => [0, 0]), explainedVariance = [0, 0];
  largestEigenvectors(products).forEach(({ value, vector }, axis) => {
    const direction = new Float64Array(vectors[0].length); // of unnormalized length
    centred.forEach((row, index) => {
      for (let i = 0; i < row.length; i++) direction[i] += vector[index] * row[i];
    });
    const largest = direction.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0);
    const scale = Math.sqrt(Math.max(value, 0)) * (largest < 0 ? -1 : 1);
    points.forEach((point, row) => (point[axis] = scale * vector[row]));
    explainedVariance[axis] = Math.max(value, 0) / total;
  });
  return { points, explainedVariance };
}

function centre(vectors) {
  const mean = new Float64Array(vectors[0].length);
  for (const vector of vectors) {
    for (let i = 0; i < mean.length; i++) mean[i] += vector[i] / vectors.length;
  }
  return vectors.map((vector) => Float64Array.from(vector, (x, i) => x - mean[i]));
}

// The two eigenvectors of the largest eigenvalues of a symmetric matrix without negative ones, by
// iterating a block of vectors (Rutishauser's method).
function largestEigenvectors(matrix) {
  const size = matrix.length;
  let block = Array.from({ length: Math.min(BLOCK, size) }, (_, column) =>
    Float64Array.from({ length: size }, (_, row) => Math.sin(1 + row * (column + 1) + column ** 2)),
  );
  let values = [];
  for (let iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
    orthonormalize(block);
    const images = block.map((vector) => Float64Array.from(matrix, (row) => dot(row, vector)));
    const small = block.map((vector) => Float64Array.from(images, (image) => dot(vector, image)));
    const pairs = jacobi(small).slice(0, block.length);
    const before = values;
    values = pairs.map(({ value }) => value);
    const combined = (vectors) => pairs.map(({ vector }) => {
      const result = new Float64Array(size);
      vectors.forEach((other, index) => {
        for (let i = 0; i < size; i++) result[i] += vector[index] * other[i];
      });
      return result;
    });
    const ritz = combined(block), next = combined(images);
    const residuals = [0, 1].filter((index) => index < pairs.length).map((index) =>
      Math.hypot(...next[index].map((x, i) => x - values[index] * ritz[index][i])));
    const isSettled = before.length && Math.max(...residuals) <= 1e-9 * Math.max(values[0], 1e-12);
    if (isSettled || iteration === MAX_ITERATIONS - 1 || values[0] <= TOLERANCE) {
      return pairs.slice(0, 2).map(({ value }, index) => ({ value, vector: ritz[index] }));
    }
    block = next;
  }
  return [];
}

// Gram and Schmidt's method, twice; a vector that depends on the others becomes zero.
function orthonormalize(vectors) {
  vectors.forEach((vector, index) => {
    const length = Math.sqrt(dot(vector, vector));
    for (let round = 0; round < 2; round++) {
      for (const other of vectors.slice(0, index)) {
        const share = dot(vector, other);
        for (let i = 0; i < vector.length; i++) vector[i] -= share * other[i];
      }
    }
    const rest = Math.sqrt(dot(vector, vector));
    const scale = rest > 1e-12 * Math.max(length, 1e-300) ? 1 / rest : 0;
    for (let i = 0; i < vector.length; i++) vector[i] *= scale;
  });
}

// All eigenvectors of a small symmetric matrix, those of the largest eigenvalues first.
function jacobi(matrix) {
  const size = matrix.length;
  const a = matrix.map((row) => [...row]);
  const vectors = a.map((_, row) => a.map((_, column) => Number(row === column)));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let p = 0; p < size; p++) for (let q = 0; q < p; q++) off += a[p][q] ** 2;
    if (off <= 1e-30 * sum(a.map((row, index) => row[index] ** 2))) break;
    for (let p = 0; p < size - 1; p++) {
      for (let q = p + 1; q < size; q++) {
        if (!a[p][q]) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
        const cosine = 1 / Math.hypot(tangent, 1), sine = tangent * cosine;
        const rotate = (x, y) => [cosine * x - sine * y, sine * x + cosine * y];
        for (const row of a) [row[p], row[q]] = rotate(row[p], row[q]);
        for (const row of vectors) [row[p], row[q]] = rotate(row[p], row[q]);
        for (let i = 0; i < size; i++) [a[p][i], a[q][i]] = rotate(a[p][i], a[q][i]);
      }
    }
  }
  return a
    .map((row, index) => ({ value: row[index], vector: vectors.map((own) => own[index]) }))
    .sort((one, other) => other.value - one.value);
}

// The k-means cluster of each vector, numbered in order of appearance.
export function cluster(vectors, clusters) {
  const random = createRandom();
  let best = { inertia: Infinity };
  for (let start = 0; start < STARTS; start++) {
    const found = kMeans(vectors, chooseCentres(vectors, clusters, random));
    if (found.inertia < best.inertia * (1 - 1e-9)) best = found;
  }
  const order = new Map();
  return best.labels.map((label) => {
    if (!order.has(label)) order.set(label, order.size);
    return order.get(label);
  });
}

// The next centre is a vector far from those before (k-means++).
function chooseCentres(vectors, count, random) {
  const centres = [vectors[Math.floor(random() * vectors.length)]];
  while (centres.length < count) {
    const distances = vectors.map((vector) => Math.min(...centres.map((c) => distance(vector, c))));
    let rest = random() * sum(distances);
    const chosen = distances.findIndex((own) => own && (rest -= own) <= 0);
    centres.push(vectors[Math.max(chosen, 0)]);
  }
  return centres;
}

function kMeans(vectors, centres) {
  let labels = [];
  for (let step = 0; step < MAX_STEPS; step++) {
    const nearest = vectors.map((vector) => {
      const distances = centres.map((own) => distance(vector, own));
      return distances.indexOf(Math.min(...distances));
    });
    if (nearest.every((label, row) => label === labels[row])) break;
    labels = nearest;
    centres = centres.map((own, label) => {
      const members = vectors.filter((_, row) => labels[row] === label);
      return members.length ? own.map((_, i) => sum(members.map((v) => v[i])) / members.length)
        : own;
    });
  }
  return { labels, inertia: sum(vectors.map((v, row) => distance(v, centres[labels[row]]))) };
}

// Numbers from 0 to 1, the same in every run (mulberry32).
function createRandom() {
  let state = 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function dot(one, other) {
  let total = 0;
  for (let i = 0; i < one.length; i++) total += one[i] * other[i];
  return total;
}

function distance(one, other) {
  let total = 0;
  for (let i = 0; i < one.length; i++) total += (one[i] - other[i]) ** 2;
  return total;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
