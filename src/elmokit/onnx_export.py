"""A model as an ONNX file, which onnxruntime runs in many languages and in a browser.

The graph is built node by node: the LSTMs are Scan nodes, whose bodies are one step with its
projection and clips. So every size of the input is open, and only the package onnx is needed.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import Linear

from elmokit import __version__
from elmokit.atomic import write_atomically
from elmokit.embedder import Embedder
from elmokit.errors import OutputError, needs_extra
from elmokit.export import check_target
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import BiLM
from elmokit.model.char_cnn import CharacterEncoder, Highway, LexiconEncoder, WordEmbedding
from elmokit.model.kernels import LayerParameters
from elmokit.model.lstm import LSTMStack, ProjectedLSTM
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.model_config import BiLMConfig, Direction
from elmokit.scoring import Scorer

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, ValueInfoProto

# The version of the names and meanings of inputs, outputs and metadata.
FORMAT_VERSION = 1

# Every onnxruntime since 1.12 (2022) reads these.
_OPSET, _IR_VERSION = 17, 8

# Where a Slice goes to the end of an axis.
_END = 2**63 - 1

# A protobuf message cannot be larger than 2 GiB; beyond this many bytes of weights they are
# written to a file of their own.
_MAX_BYTES_IN_FILE = 2**31 - 2**24
_MIN_BYTES_BESIDE = 1024

# So many neighbouring weights of a row share a scale in 8 bits, or a little less.
_BLOCK_SIZE = 32

Array = npt.NDArray[Any]
Size = int | str  # of an axis; one with a name may be any


def export_onnx(
    embedder: Embedder, target: str | Path, *, int8: bool = False, softmax: bool = False
) -> None:
    """Write the model as an ONNX file, which onnxruntime runs in many languages and in a browser.

    Inputs are `chars`, (types, ids of a word), and `words`, (sentences, steps), as in a Batch, and
    optionally the LSTMs' state, `hidden` and `cell`, as in State. Outputs are `layers`, all of
    them, (layers, sentences, steps, dim), and the state after, `final_hidden` and `final_cell`.

    With `softmax`, words are predicted too. Each row of the input `asked`, (asked, 4), is a
    sentence, a step of the forward LSTM after which the word stands, a step of the backward LSTM
    before which it stands (-1: leave that LSTM out), and the id of a word. The outputs `top_words`
    and `top_log_probabilities`, (asked, k), are the likeliest words, and `log_probabilities`,
    (asked,), are those of the words given; with both LSTMs it is the sum of the two. `k` is an
    input, too.

    With `int8`, weights are stored as whole numbers of 8 bits, with a scale for every 32 of them:
    the file has about a quarter of the size. onnxruntime makes them float32 when it loads the file,
    so they are as fast and take as much memory as without.

    What else a program must know is in the file's metadata: see docs/onnx.md. Weights of more than
    2 GB are written beside the file, in `.onnx.data`. Needs the extra `elmokit[onnx]`.

    Example:
        elmokit.export_onnx(model, "english.onnx", int8=True)
    """
    target = check_target(Path(target), ".onnx")
    data = check_target(target.with_name(f"{target.name}.data"))
    graph = _Graph(int8=int8)
    scorer = Scorer(embedder.session) if softmax else None
    with embedder.session.computing():
        _build(graph, embedder.bilm, None if scorer is None else scorer.softmax)
        metadata = _metadata(embedder.pretrained, int8=int8, softmax=softmax)
        model, beside = graph.model(metadata, data.name)
    try:
        if beside:
            write_atomically(data, lambda file: file.writelines(array.data for array in beside))
        write_atomically(target, model.SerializeToString())
    except OSError as error:
        data.unlink(missing_ok=True)  # without the model, nobody would know what it is
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def _build(graph: "_Graph", bilm: BiLM, softmax: "Softmax | AdaptiveSoftmax | None") -> None:
    """The whole graph: words to vectors, LSTMs, layers, states, and predictions."""
    config = bilm.config
    chars = graph.input("chars", np.int64, ["types", "characters"])
    words = graph.input("words", np.int64, ["sentences", "steps"])
    initial = _initial_state(graph, config, words)

    types = _encoder(graph, bilm.encoder, chars)  # (types, dim)
    steps = graph.op("Transpose", words, perm=[1, 0])  # (steps, sentences)
    inputs = graph.op("Gather", types, steps)  # (steps, sentences, dim)
    is_word = graph.op("Greater", steps, graph.constant(0))  # (steps, sentences)
    is_word = graph.op("Unsqueeze", is_word, graph.constant([2]))

    tops: dict[Direction, str] = {}
    layers: list[list[str]] = [[] for _ in range(config.num_layers + 1)]
    final: tuple[list[str], list[str]] = [], []
    for number, (direction, stack) in enumerate(zip(config.directions, bilm.lstms, strict=True)):
        assert isinstance(stack, LSTMStack)
        outputs, states = _lstm_stack(graph, stack, direction, inputs, is_word, initial[number])
        for layer, output in zip(layers, outputs, strict=True):
            layer.append(output)
        for kind in (0, 1):
            final[kind].append(graph.stack([state[kind] for state in states], 0))
        tops[direction] = outputs[-1]

    both = [graph.op("Concat", *halves, axis=2) for halves in layers]
    for number in config.aligned_layers:
        matrix = bilm.get_buffer(f"alignment_{number}")
        both[number] = graph.matmul(both[number], matrix)
    shown = graph.as_float32(is_word)  # 0 at padding
    stacked = graph.op("Mul", graph.stack(both, 0), shown)  # (layers, steps, sentences, dim)
    stacked = graph.op("Transpose", stacked, perm=[0, 2, 1, 3])

    shape: list[Size] = [len(both), "sentences", "steps", config.output_size]
    graph.output("layers", stacked, np.float32, shape)
    for name, parts, last in (
        ("final_hidden", final[0], config.projection_size),
        ("final_cell", final[1], config.cell_size),
    ):
        shape = [len(config.directions), config.num_layers, "sentences", last]
        graph.output(name, graph.stack(parts, 0), np.float32, shape)
    if softmax is not None:
        _predictions(graph, softmax, tops)


def _initial_state(graph: "_Graph", config: BiLMConfig, words: str) -> list[list[tuple[str, str]]]:
    """The hidden and cell states of each direction and layer, (sentences, size) each.

    The inputs `hidden` and `cell` may be left out: they have values, zeros for one sentence, which
    are repeated for all.
    """
    directions, num_layers = len(config.directions), config.num_layers
    sentences = graph.op("Slice", graph.op("Shape", words), *map(graph.constant, ([0], [1])))
    split: list[list[str]] = []
    for name, size in (("hidden", config.projection_size), ("cell", config.cell_size)):
        shape: list[Size] = [directions, num_layers, "sentences of the state", size]
        zeros = np.zeros((directions, num_layers, 1, size), np.float32)
        graph.input(name, np.float32, shape, default=zeros)
        parts = graph.constant([directions]), graph.constant([num_layers])
        full = graph.op("Concat", *parts, sentences, graph.constant([size]), axis=0)
        states = graph.op("Expand", name, full)
        one = graph.constant([directions * num_layers, -1, size])
        states = graph.op("Reshape", states, one)
        split.append(
            [
                graph.op("Gather", states, graph.constant(index), axis=0)
                for index in range(directions * num_layers)
            ]
        )
    pairs = [*zip(*split, strict=True)]
    return [
        [(hidden, cell) for hidden, cell in pairs[start : start + num_layers]]
        for start in range(0, len(pairs), num_layers)
    ]


def _encoder(graph: "_Graph", encoder: object, chars: str) -> str:  # -> (types, dim)
    if isinstance(encoder, CharacterEncoder):
        return _character_encoder(graph, encoder, chars)
    if isinstance(encoder, WordEmbedding):
        ids = graph.op("Gather", chars, graph.constant(0), axis=1)
        return graph.lookup(encoder.embedding.weight, ids, ids_rank=1)
    assert isinstance(encoder, LexiconEncoder)
    features = []
    if encoder.words is not None:
        features.append(_encoder(graph, encoder.words, chars))
        chars = graph.op("Slice", chars, *map(graph.constant, ([1], [_END], [1])))
    if encoder.characters is not None:
        features.append(_character_encoder(graph, encoder.characters, chars))
    return graph.linear(graph.op("Concat", *features, axis=1), encoder.projection)


def _character_encoder(graph: "_Graph", encoder: CharacterEncoder, chars: str) -> str:
    """Character embeddings, convolution, max-pooling, highway layers, projection."""
    config = encoder.config
    widest = max(width for width, _ in config.filters)
    chars = _without_long_padding(graph, chars, widest)
    vectors = graph.lookup(encoder.embedding.weight, chars, ids_rank=2)
    # vectors: (types, characters, size)
    vectors = graph.op("Transpose", vectors, perm=[0, 2, 1])
    activation = "Relu" if config.activation == "relu" else "Tanh"
    features = []
    for (width, number), layer in zip(config.filters, encoder.filters, strict=True):
        assert isinstance(layer, Linear)
        kernel = array_of(layer.weight).reshape(number, width, config.embedding_size)
        kernel = kernel.transpose(0, 2, 1)
        weight = graph.weight(kernel.reshape(number, -1), kernel.shape)
        windows = graph.op("Conv", vectors, weight, graph.constant(array_of(layer.bias)))
        best = graph.op("ReduceMax", windows, axes=[2], keepdims=0)  # (types, filters)
        features.append(graph.op(activation, best))
    rows = graph.op("Concat", *features, axis=1)
    for highway in encoder.highways:
        assert isinstance(highway, Highway)
        gate = graph.op("Sigmoid", graph.linear(rows, highway.gate))
        transformed = graph.op("Relu", graph.linear(rows, highway.transform))
        change = graph.op("Mul", gate, graph.op("Sub", transformed, rows))
        rows = graph.op("Add", rows, change)
    return rows if encoder.projection is None else graph.linear(rows, encoder.projection)


def _without_long_padding(graph: "_Graph", chars: str, widest: int) -> str:
    """The columns of characters that matter: of the padding, those of one window."""
    last = graph.op("Slice", chars, *map(graph.constant, ([-1], [_END], [1])))
    is_padding = graph.op("Equal", chars, last)
    num_columns = graph.op("Slice", graph.op("Shape", chars), *map(graph.constant, ([1], [2])))
    one = graph.constant(1)
    columns = graph.op("Range", one, graph.op("Add", graph.op("Squeeze", num_columns), one), one)
    counted = graph.op("Where", is_padding, graph.constant(0), columns)
    longest = graph.op("ReduceMax", counted, axes=[0, 1], keepdims=0)
    end = graph.op("Add", longest, graph.constant([widest]))
    return graph.op("Slice", chars, graph.constant([0]), end, graph.constant([1]))


def _lstm_stack(
    graph: "_Graph",
    stack: LSTMStack,
    direction: Direction,
    inputs: str,
    is_word: str,
    initial: Sequence[tuple[str, str]],
) -> tuple[list[str], list[tuple[str, str]]]:
    """The layers of a direction, layer 0 first, (steps, sentences, dim), and their final states."""
    outputs, states = [inputs], []
    for number, (layer, state) in enumerate(zip(stack.layers, initial, strict=True)):
        assert isinstance(layer, ProjectedLSTM)
        *final, output = _lstm(graph, layer, direction, inputs, is_word, state)
        states.append((final[0], final[1]))
        inputs = graph.op("Add", output, inputs) if stack.skip_connections and number else output
        outputs.append(inputs)
    return outputs, states


def _lstm(
    graph: "_Graph",
    layer: ProjectedLSTM,
    direction: Direction,
    inputs: str,
    is_word: str,
    state: tuple[str, str],
) -> list[str]:
    """The final hidden and cell state, and the hidden state at each step.

    The backward LSTM goes through the padding first, where the state stays as it is.
    """
    parameters = layer.parameters_of_inference()
    from_input = graph.op(
        "Add",
        graph.matmul(inputs, parameters.input_weight),
        graph.constant(array_of(parameters.bias)),
    )  # (steps, sentences, 4 * cell_size)
    body = _lstm_step(graph, layer, parameters)
    backward = int(direction == "backward")
    return graph.ops(
        "Scan", [*state, from_input, is_word], 3,
        body=body, num_scan_inputs=2,
        scan_input_directions=[backward, backward], scan_output_directions=[backward],
    )  # fmt: skip


def _lstm_step(graph: "_Graph", layer: ProjectedLSTM, parameters: LayerParameters) -> object:
    """The body of the Scan: one step of all sentences."""
    cell_size, dim = len(parameters.bias) // 4, parameters.input_weight.shape[1]
    step = graph.body()
    hidden = step.input("hidden", np.float32, ["sentences", dim])
    cell = step.input("cell", np.float32, ["sentences", cell_size])
    from_input = step.input("from_input", np.float32, ["sentences", 4 * cell_size])
    is_word = step.input("is_word", np.bool_, ["sentences", 1])

    gates = step.gemm(hidden, parameters.recurrent_weight, from_input)
    if parameters.peepholes is None:
        sizes = step.constant([3 * cell_size, cell_size])
        early, candidate = step.ops("Split", [gates, sizes], 2, axis=1)
        gates = step.op("Sigmoid", early)
        sizes = step.constant([cell_size] * 3)
        input_gate, forget_gate, output_gate = step.ops("Split", [gates, sizes], 3, axis=1)
        peepholes = None
    else:
        sizes = step.constant([cell_size] * 4)
        input_gate, forget_gate, output_gate, candidate = step.ops(
            "Split", [gates, sizes], 4, axis=1
        )
        peepholes = [step.constant(row) for row in array_of(parameters.peepholes)]
        input_gate, forget_gate = (
            step.op("Sigmoid", step.op("Add", gate, step.op("Mul", cell, peephole)))
            for gate, peephole in zip((input_gate, forget_gate), peepholes[:2], strict=True)
        )
    new_cell = step.op(
        "Add",
        step.op("Mul", forget_gate, cell),
        step.op("Mul", input_gate, step.op("Tanh", candidate)),
    )
    new_cell = step.clip(new_cell, layer.clips.cell)
    if peepholes is not None:
        from_cell = step.op("Mul", new_cell, peepholes[2])
        output_gate = step.op("Sigmoid", step.op("Add", output_gate, from_cell))
    new_hidden = step.op("Mul", output_gate, step.op("Tanh", new_cell))
    if parameters.projection is not None:
        new_hidden = step.gemm(new_hidden, parameters.projection)
    new_hidden = step.clip(new_hidden, layer.clips.projection)

    new_hidden = step.op("Where", is_word, new_hidden, hidden)
    new_cell = step.op("Where", is_word, new_cell, cell)
    step.output("hidden_after", new_hidden, np.float32, ["sentences", dim])
    step.output("cell_after", new_cell, np.float32, ["sentences", cell_size])
    step.output("hidden_of_step", new_hidden, np.float32, ["sentences", dim])
    return step.proto("step")


def _predictions(
    graph: "_Graph", softmax: "Softmax | AdaptiveSoftmax", tops: dict[Direction, str]
) -> None:
    """The likeliest words where the input `asked` asks, and the log-probability of a given one.

    Where nothing is asked nothing is computed: TopK of no rows divides by zero in WebAssembly.
    """
    asked = graph.input("asked", np.int64, ["asked", 4])
    k = graph.input("k", np.int64, [1])
    count = graph.op("Slice", graph.op("Shape", asked), *map(graph.constant, ([0], [1])))
    is_asked = graph.op("Greater", count, graph.constant([0]))
    k = graph.op("Min", k, graph.constant([softmax.num_words]))
    results = graph.ops(
        "If", [is_asked], 3,
        then_branch=_answers(graph.body(), softmax, tops, asked, k),
        else_branch=_no_answers(graph.body(), k),
    )  # fmt: skip
    for (name, dtype, shape), value in zip(_ANSWERS, results, strict=True):
        graph.output(name, value, dtype, shape)


_ANSWERS: tuple[tuple[str, Any, list[Size]], ...] = (
    ("top_words", np.int64, ["asked", "k"]),
    ("top_log_probabilities", np.float32, ["asked", "k"]),
    ("log_probabilities", np.float32, ["asked"]),
)


def _answers(
    body: "_Graph",
    softmax: "Softmax | AdaptiveSoftmax",
    tops: dict[Direction, str],
    asked: str,
    k: str,
) -> object:
    sentence, forward, backward, word = (
        body.op("Slice", asked, *map(body.constant, ([column], [column + 1], [1])))
        for column in range(4)
    )  # (asked, 1) each
    count = body.op("Slice", body.op("Shape", asked), *map(body.constant, ([0], [1])))
    size = body.op("Concat", count, body.constant([softmax.num_words]), axis=0)
    scores = body.op("ConstantOfShape", size)  # (asked, vocabulary), zeros
    for direction, step in (("forward", forward), ("backward", backward)):
        if direction not in tops:
            continue
        # A direction is computed for the rows that ask for it.
        asks = body.op("Squeeze", body.op("Greater", step, body.constant(-1)), body.constant([1]))
        rows = body.op("Transpose", body.op("NonZero", asks), perm=[1, 0])  # (rows, 1)
        place = body.op("Concat", step, sentence, axis=1)
        vectors = body.op("GatherND", tops[direction], body.op("GatherND", place, rows))
        logs = _log_softmax(body, softmax, vectors)  # (rows, vocabulary)
        scores = body.op("ScatterND", scores, rows, logs, reduction="add")
    values, ids = body.ops("TopK", [scores, k], 2, axis=1)
    of_word = body.op("GatherElements", scores, word, axis=1)
    of_word = body.op("Squeeze", of_word, body.constant([1]))
    for (name, dtype, shape), value in zip(_ANSWERS, (ids, values, of_word), strict=True):
        body.output(name, value, dtype, shape)
    return body.proto("answers")


def _no_answers(body: "_Graph", k: str) -> object:
    no_rows = body.op("Concat", body.constant([0]), k, axis=0)
    for (name, dtype, shape), size in zip(
        _ANSWERS, (no_rows, no_rows, body.constant([0])), strict=True
    ):
        zero = body.tensor(np.zeros(1, dtype))
        body.output(name, body.op("ConstantOfShape", size, value=zero), dtype, shape)
    return body.proto("no_answers")


def _log_softmax(graph: "_Graph", softmax: "Softmax | AdaptiveSoftmax", vectors: str) -> str:
    """The log-probability of each word, (asked, vocabulary)."""
    if isinstance(softmax, Softmax):
        return graph.op("LogSoftmax", graph.linear(vectors, softmax), axis=1)
    frequent = softmax.cutoffs[0]
    head = graph.op("LogSoftmax", graph.linear(vectors, softmax.classes.head), axis=1)
    parts = [graph.op("Slice", head, *map(graph.constant, ([0], [frequent], [1])))]
    for number, tail in enumerate(softmax.classes.tail):
        start = [frequent + number], [frequent + number + 1], [1]
        of_class = graph.op("Slice", head, *map(graph.constant, start))  # (asked, 1)
        logits = graph.linear(graph.linear(vectors, tail[0]), tail[1])  # type: ignore[index]
        parts.append(graph.op("Add", graph.op("LogSoftmax", logits, axis=1), of_class))
    return graph.op("Concat", *parts, axis=1)


class _Graph:
    """A graph under construction: each method adds nodes and returns the names of their results.

    The weights of the body of a Scan are those of the graph around it.
    """

    def __init__(self, *, int8: bool, outer: "_Graph | None" = None) -> None:
        with needs_extra("writing ONNX files needs onnx", "onnx"):
            import onnx  # noqa: PLC0415  an extra
            from onnx import helper, numpy_helper  # noqa: PLC0415
        self.types: Any = onnx.TensorProto
        self._helper, self._numpy = helper, numpy_helper
        self._int8 = int8
        self._root: _Graph = self if outer is None else outer._root
        self._nodes: list[Any] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        if outer is None:
            self._num_values = 0
            self._arrays: dict[str, Array] = {}  # constants and weights
            self._stored: dict[tuple[object, ...], str] = {}

    def body(self) -> "_Graph":
        """The graph of one step of a Scan."""
        return _Graph(int8=self._int8, outer=self)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result."""
        return self.ops(kind, list(inputs), 1, **attributes)[0]

    def ops(self, kind: str, inputs: list[str], num_results: int, **attributes: Any) -> list[str]:
        """A node with several results."""
        results = [self._new_name(kind) for _ in range(num_results)]
        self._nodes.append(
            self._helper.make_node(kind, inputs, results, name=results[0], **attributes)
        )
        return results

    def input(
        self, name: str, dtype: Any, shape: Sequence[Size], default: Array | None = None
    ) -> str:
        """An input; with a default, it may be left out."""
        if self is not self._root:
            name = self._new_name(name)
        self._inputs.append(self._value_info(name, dtype, shape))
        if default is not None:
            self._arrays[name] = default
        return name

    def output(self, name: str, value: str, dtype: Any, shape: Sequence[Size]) -> None:
        """An output, which is this value."""
        if self is not self._root:
            name = self._new_name(name)
        self._nodes.append(self._helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(self._value_info(name, dtype, shape))

    def constant(self, value: object) -> str:
        """A constant of whole numbers, or an array; equal numbers are stored once."""
        if not isinstance(value, np.ndarray):
            key = "constant", repr(value)
            if key not in self._root._stored:
                self._root._stored[key] = self._store(np.array(value, np.int64))
            return self._root._stored[key]
        return self._store(value)

    def weight(self, matrix: Array, shape: Sequence[int] | None = None) -> str:
        """A weight, (out, in), given another shape if one is named; with int8, in 8 bits."""
        shape = matrix.shape if shape is None else shape
        if not self._int8:
            return self._store(matrix.reshape(shape))
        whole, scale = _quantized(matrix)
        # DequantizeLinear would be computed in every run; this is computed when a file is loaded.
        product = self._root.op(
            "Mul", *map(self._root.as_float32, map(self._store, (whole, scale)))
        )
        return self._root.op("Reshape", product, self.constant([*shape]))

    def as_float32(self, values: str) -> str:
        """The values as float32."""
        return self.op("Cast", values, to=self.types.FLOAT)

    def matmul(self, values: str, weight: Tensor) -> str:  # (..., in), (out, in) -> (..., out)
        return self.op("MatMul", values, self._parameter(weight, transposed=True))

    def linear(self, rows: str, layer: Any) -> str:  # (rows, in) -> (rows, out)
        return self.gemm(rows, layer.weight, None if layer.bias is None else array_of(layer.bias))

    def gemm(self, rows: str, weight: Tensor, added: "Array | str | None" = None) -> str:
        """A product with a weight, (out, in), and a bias or rows that are added to it."""
        inputs = [rows, self._parameter(weight)]
        if added is not None:
            inputs.append(added if isinstance(added, str) else self.constant(added))
        return self.op("Gemm", *inputs, transB=1)

    def lookup(self, table: Tensor, ids: str, *, ids_rank: int) -> str:  # (...) -> (..., dim)
        """The rows of a table."""
        matrix = array_of(table)
        if not self._int8:
            return self.op("Gather", self._store(matrix), ids)
        parts = [self.op("Gather", self._store(part), ids) for part in _quantized(matrix)]
        rows = self.op("Mul", *map(self.as_float32, parts))  # (..., blocks, numbers)
        return self.op("Reshape", rows, self.constant([0] * ids_rank + [-1]))

    def clip(self, values: str, clip: float | None) -> str:
        if clip is None:
            return values
        bounds = (self.constant(np.array(bound, np.float32)) for bound in (-clip, clip))
        return self.op("Clip", values, *bounds)

    def stack(self, values: Sequence[str], axis: int) -> str:
        """The values along a new axis."""
        axes = self.constant([axis])
        parts = [self.op("Unsqueeze", value, axes) for value in values]
        return self.op("Concat", *parts, axis=axis)

    def tensor(self, array: Array) -> "TensorProto":
        """A constant as an attribute of a node."""
        return self._numpy.from_array(array)

    def proto(self, name: str) -> Any:
        """The graph as ONNX's record, without the constants and weights."""
        return self._helper.make_graph(self._nodes, name, self._inputs, self._outputs)

    def model(self, metadata: dict[str, str], location: str) -> "tuple[ModelProto, list[Array]]":
        """The graph as a model, and the arrays that belong in the file `location` beside it."""
        model = self._helper.make_model(
            self.proto("elmo"),
            opset_imports=[self._helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="elmokit",
            producer_version=__version__,
        )
        self._helper.set_model_props(model, metadata)
        split = sum(array.nbytes for array in self._arrays.values()) > _MAX_BYTES_IN_FILE
        beside: list[Array] = []
        offset = 0
        for name, array in self._arrays.items():
            tensor = model.graph.initializer.add()
            # Sizes and clips stay where the checks of a graph look for them.
            if not split or array.nbytes < _MIN_BYTES_BESIDE:
                tensor.CopyFrom(self._numpy.from_array(array, name))
                continue
            tensor.name = name
            tensor.data_type = self._helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor.dims.extend(array.shape)
            tensor.data_location = self.types.EXTERNAL
            for key, value in (
                ("location", location), ("offset", offset), ("length", array.nbytes)
            ):  # fmt: skip
                tensor.external_data.add(key=key, value=str(value))
            beside.append(array)
            offset += array.nbytes
        return model, beside

    def _parameter(self, weight: Tensor, *, transposed: bool = False) -> str:
        """A parameter's name; one that several nodes use is stored once."""
        key = weight.data_ptr(), tuple(weight.shape), transposed
        stored = self._root._stored
        if key not in stored:
            matrix = array_of(weight)
            if not transposed:
                stored[key] = self.weight(matrix)
            elif self._int8:
                stored[key] = self._root.op("Transpose", self.weight(matrix), perm=[1, 0])
            else:
                stored[key] = self.weight(matrix.T)
        return stored[key]

    def _store(self, array: Array) -> str:
        name = self._new_name("constant")
        self._root._arrays[name] = np.asarray(array, order="C")
        return name

    def _new_name(self, kind: str) -> str:
        self._root._num_values += 1
        return f"{kind}_{self._root._num_values}"

    def _value_info(self, name: str, dtype: Any, shape: Sequence[Size]) -> "ValueInfoProto":
        kind = self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._helper.make_tensor_value_info(name, kind, shape)


def _quantized(matrix: Array) -> tuple[Array, Array]:
    """Each row in blocks of whole numbers from -127 to 127, and a scale for each block.

    (rows, numbers) -> (rows, blocks, numbers of a block), (rows, blocks, 1).
    """
    size = matrix.shape[1]
    length = max(n for n in range(1, min(size, _BLOCK_SIZE) + 1) if size % n == 0)
    length = length if length >= _BLOCK_SIZE // 4 else size  # a size with no fitting divisor
    blocks = matrix.reshape(len(matrix), -1, length)
    smallest = np.finfo(np.float16).smallest_subnormal
    scale = (np.abs(blocks).max(2, keepdims=True) / 127).astype(np.float16)
    scale = np.maximum(scale, smallest)
    whole = np.rint(blocks / scale.astype(np.float32)).clip(-127, 127)
    return whole.astype(np.int8), scale


def array_of(tensor: Tensor) -> Array:
    """A parameter as an array of float32."""
    array: Array = tensor.detach().float().cpu().numpy()
    return array


def _metadata(pretrained: Pretrained, *, int8: bool, softmax: bool) -> dict[str, str]:
    """What a program must know to make ids and to read the outputs; lists are JSON."""
    bilm = pretrained.model.bilm
    config = bilm.config
    facts: dict[str, object] = {
        "format": "elmokit",
        "format_version": FORMAT_VERSION,
        "fingerprint": pretrained.fingerprint(),
        "tokenizer": pretrained.tokenizer,
        "licence": _licence(pretrained.card),
        "num_layers": config.num_layers + 1,
        "dim": config.output_size,
        "projection_size": config.projection_size,
        "cell_size": config.cell_size,
        "directions": [*config.directions],
        "parameters": sum(parameter.numel() for parameter in bilm.parameters()),
        "precision": "int8" if int8 else "float32",
        "softmax": softmax,
    }
    if config.characters is not None:
        facts |= {"ids": "bytes", "max_characters": config.characters.max_characters}
    elif config.lexicons is not None:
        assert pretrained.lexicons is not None  # checked by Pretrained
        facts |= {"ids": "lexicons", "max_characters": config.lexicons.max_characters}
        for name in ("characters", "words"):
            if (lexicon := getattr(pretrained.lexicons, name)) is not None:
                facts[f"lexicon_{name}"] = [*lexicon]
    else:
        facts |= {"ids": "words", "max_characters": 1}
    if pretrained.vocabulary is not None and (softmax or config.vocabulary_size is not None):
        facts["vocabulary"] = [*pretrained.vocabulary]
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in facts.items()
    }


def _licence(card: str) -> str:
    """What the metadata of a model card say of its licence."""
    front = re.match(r"\s*---[ \t]*\r?\n(.*?)\n---", card, re.DOTALL)
    lines = dict(
        re.findall(r"^(license(?:_name)?):[ \t]*(.*?)[ \t]*$", front[1] if front else "", re.M)
    )
    stated: str = lines.get("license_name") or lines.get("license", "")
    with suppress(ValueError):
        stated = str(json.loads(stated))
    return stated.strip("'\"") or "unknown"
