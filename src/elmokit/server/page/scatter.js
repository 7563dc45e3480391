// Points become a picture by WebGL: round, coloured by group, and moving between layers.

import { make } from "./make.js";

const VERTEX = `
attribute vec2 here, there;
attribute vec3 colour;
attribute float chosen;
uniform float share, size, margin;
varying vec3 tint;
varying float ring;
void main() {
  gl_Position = vec4(mix(here, there, share) * margin, -0.5 * chosen, 1);
  gl_PointSize = size * (1.0 + 0.6 * chosen);
  tint = colour;
  ring = chosen;
}`;
const FRAGMENT = `
precision mediump float;
varying vec3 tint;
varying float ring;
void main() {
  float far = length(gl_PointCoord - 0.5);
  if (far > 0.5) discard;
  float edge = ring * smoothstep(0.32, 0.36, far);
  gl_FragColor = vec4(mix(tint, vec3(0.5), edge), 1);
}`;
const NO_PICTURE = "This browser has no WebGL, so there is no picture; the uses are listed below.";
const MARGIN = 0.92, SIZE = 13, NEAR = 24; // the last two in the page's pixels

export const COLOURS = [
  [0.2, 0.5, 0.85], [0.9, 0.45, 0.1], [0.17, 0.6, 0.3],
  [0.85, 0.25, 0.35], [0.6, 0.42, 0.8], [0.5, 0.5, 0.5],
];

export class Scatter {
  constructor(canvas) {
    this.canvas = canvas;
    this.layers = [];
    this.groups = [];
    this.layer = 0;
    this.chosen = -1;
    this.drawn = () => {}; // told after each drawing
    this.gl = canvas.getContext("webgl", { antialias: true, preserveDrawingBuffer: true });
    if (!this.gl) {
      canvas.replaceWith(make("p", NO_PICTURE));
      return;
    }
    this.prepare();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.prepare();
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // Points of each layer, all within -1 and 1, and the group of each point.
  show(layers, groups) {
    this.layers = layers;
    this.groups = groups;
    this.draw();
  }

  moveTo(layer) {
    this.layer = layer;
    this.draw();
  }

  choose(point) {
    this.chosen = point;
    this.draw();
  }

  // The point nearest to a place of the window, -1 if none is near.
  at(x, y) {
    const box = this.canvas.getBoundingClientRect();
    let best = -1, near = NEAR;
    this.places().forEach(([px, py], point) => {
      const far = Math.hypot(px - (x - box.left), py - (y - box.top));
      if (far < near) [best, near] = [point, far];
    });
    return best;
  }

  // Where the points stand, in the page's pixels from the picture's corner.
  places() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [below, above, share] = this.around();
    return below.map((from, point) => {
      const to = above[point];
      const [x, y] = [0, 1].map((axis) => from[axis] + share * (to[axis] - from[axis]));
      return [((1 + MARGIN * x) / 2) * width, ((1 - MARGIN * y) / 2) * height];
    });
  }

  // The layer below, the one above, and how far it is from one to the other.
  around() {
    const floor = Math.floor(this.layer), below = this.layers[floor] ?? [];
    return [below, this.layers[Math.ceil(this.layer)] ?? below, this.layer - floor];
  }

  draw() {
    const { gl, canvas } = this;
    if (!gl || gl.isContextLost() || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.drawn();
    const [below, above, share] = this.around();
    if (!below.length) return;
    this.fill("here", 2, below.flat());
    this.fill("there", 2, above.flat());
    this.fill("colour", 3, this.groups.flatMap((group) => COLOURS[group % COLOURS.length]));
    this.fill("chosen", 1, below.map((_, point) => Number(point === this.chosen)));
    this.set("share", share);
    this.set("size", SIZE * ratio);
    this.set("margin", MARGIN);
    gl.drawArrays(gl.POINTS, 0, below.length);
  }

  prepare() {
    const { gl } = this;
    this.program = link(gl, VERTEX, FRAGMENT);
    this.buffers = {};
    gl.useProgram(this.program);
    gl.enable(gl.DEPTH_TEST); // the chosen point is before the others
    gl.depthFunc(gl.LEQUAL);
    gl.clearColor(0, 0, 0, 0);
  }

  fill(name, size, numbers) {
    const { gl } = this;
    const place = gl.getAttribLocation(this.program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, (this.buffers[name] ??= gl.createBuffer()));
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(numbers), gl.DYNAMIC_DRAW);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, size, gl.FLOAT, false, 0, 0);
  }

  set(name, number) {
    this.gl.uniform1f(this.gl.getUniformLocation(this.program, name), number);
  }
}

function link(gl, ...sources) {
  const program = gl.createProgram();
  sources.forEach((source, part) => {
    const shader = gl.createShader(part ? gl.FRAGMENT_SHADER : gl.VERTEX_SHADER);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  });
  gl.linkProgram(program);
  if (gl.getProgramParameter(program, gl.LINK_STATUS)) return program;
  throw new Error(gl.getProgramInfoLog(program));
}
