// The metadata of an ONNX file, which onnxruntime-web does not give.

// Fields of ModelProto and StringStringEntryProto, and the wire types of protobuf.
const METADATA_PROPS = 14, KEY = 1, VALUE = 2;
const VARINT = 0, EIGHT_BYTES = 1, BYTES = 2, FOUR_BYTES = 5;

/** The metadata of a model as an object of strings; null if the bytes are no ONNX file. */
export function readMetadata(bytes) {
  const metadata = Object.create(null);
  const text = new TextDecoder();
  try {
    for (const [field, entry] of fields(bytes)) {
      if (field !== METADATA_PROPS || !entry) continue;
      const parts = new Map(fields(entry));
      metadata[text.decode(parts.get(KEY))] = text.decode(parts.get(VALUE));
    }
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
  return metadata;
}

// The fields of a message with their bytes, null for numbers.
function* fields(bytes) {
  let position = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      if (position >= bytes.length || scale > 2 ** 49) throw new RangeError("no protobuf");
      const byte = bytes[position++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (position < bytes.length) {
    const tag = varint();
    const field = Math.floor(tag / 8), wireType = tag % 8;
    if (wireType === VARINT) {
      skipVarint();
      yield [field, null];
    } else if (wireType === EIGHT_BYTES || wireType === FOUR_BYTES) {
      position += wireType === EIGHT_BYTES ? 8 : 4;
      yield [field, null];
    } else if (wireType === BYTES) {
      const length = varint();
      if (position + length > bytes.length) throw new RangeError("no protobuf");
      yield [field, bytes.subarray(position, position + length)];
      position += length;
    } else {
      throw new RangeError("no protobuf");
    }
  }

  // A negative number has ten bytes.
  function skipVarint() {
    while (position < bytes.length && bytes[position] > 127) position++;
    position++;
  }
}
