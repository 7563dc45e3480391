// A scatter plot in WebGL: round points, coloured by group, that move between layers.

import { create } from "./elements.js";

const VERTEX = `
attribute vec2 lowerPoint, upperPoint;
attribute vec3 colour;
attribute float selected;
uniform float share, size, margin;
varying vec3 tint;
varying float ring;
void main() {
  gl_Position = vec4(mix(lowerPoint, upperPoint, share) * margin, -0.5 * selected, 1);
  gl_PointSize = size * (1.0 + 0.6 * selected);
  tint = colour;
  ring = selected;
}`;
const FRAGMENT = `
precision mediump float;
varying vec3 tint;
varying float ring;
void main() {
  float radius = length(gl_PointCoord - 0.5);
  if (radius > 0.5) discard;
  float edge = ring * smoothstep(0.32, 0.36, radius);
  float opacity = 1.0 - smoothstep(0.44, 0.5, radius);
  gl_FragColor = vec4(mix(tint, vec3(0.5), edge) * opacity, opacity);
}`;
const NO_WEBGL = "This browser has no WebGL, so there is no plot; the sentences are listed below.";
const MARGIN = 0.92, POINT_SIZE = 14, SELECTION_RADIUS = 24; // the last two in CSS pixels

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
    this.selected = -1;
    this.onDraw = () => {};
    this.gl = canvas.getContext("webgl", { antialias: true, preserveDrawingBuffer: true });
    if (!this.gl) {
      canvas.replaceWith(create("p", NO_WEBGL));
      return;
    }
    this.initialise();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.initialise();
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // The points of each layer, all between -1 and 1, and the group of each point.
  show(layers, groups) {
    this.layers = layers;
    this.groups = groups;
    this.draw();
  }

  moveTo(layer) {
    this.layer = layer;
    this.draw();
  }

  select(point) {
    this.selected = point;
    this.draw();
  }

  // The point nearest to a position in the window, -1 if none is near.
  pointAt(x, y) {
    const box = this.canvas.getBoundingClientRect();
    let best = -1, nearest = SELECTION_RADIUS;
    this.positions().forEach(([px, py], point) => {
      const distance = Math.hypot(px - (x - box.left), py - (y - box.top));
      if (distance < nearest) [best, nearest] = [point, distance];
    });
    return best;
  }

  // The points in CSS pixels from the corner of the plot.
  positions() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [lower, upper, share] = this.neighbours();
    return lower.map((from, point) => {
      const to = upper[point];
      const [x, y] = [0, 1].map((axis) => from[axis] + share * (to[axis] - from[axis]));
      return [((1 + MARGIN * x) / 2) * width, ((1 - MARGIN * y) / 2) * height];
    });
  }

  // The points of the layers below and above, and how far from one to the other the plot is.
  neighbours() {
    const lower = this.layers[Math.floor(this.layer)] ?? [];
    return [lower, this.layers[Math.ceil(this.layer)] ?? lower, this.layer % 1];
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
    this.onDraw();
    const [lower, upper, share] = this.neighbours();
    if (!lower.length) return;
    this.setAttribute("lowerPoint", 2, lower.flat());
    this.setAttribute("upperPoint", 2, upper.flat());
    this.setAttribute("colour", 3, this.groups.flatMap((group) => COLOURS[group % COLOURS.length]));
    this.setAttribute("selected", 1, lower.map((_, point) => Number(point === this.selected)));
    this.setUniform("share", share);
    this.setUniform("size", POINT_SIZE * ratio);
    this.setUniform("margin", MARGIN);
    gl.drawArrays(gl.POINTS, 0, lower.length);
  }

  initialise() {
    const { gl } = this;
    this.program = createProgram(gl, VERTEX, FRAGMENT);
    this.buffers = {};
    gl.useProgram(this.program);
    gl.enable(gl.DEPTH_TEST); // the selected point is in front of the others
    gl.depthFunc(gl.LEQUAL);
    gl.enable(gl.BLEND); // for smooth edges; colours are multiplied by their opacity
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.clearColor(0, 0, 0, 0);
  }

  setAttribute(name, size, numbers) {
    const { gl } = this;
    const location = gl.getAttribLocation(this.program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, (this.buffers[name] ??= gl.createBuffer()));
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(numbers), gl.DYNAMIC_DRAW);
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
  }

  setUniform(name, number) {
    this.gl.uniform1f(this.gl.getUniformLocation(this.program, name), number);
  }
}

function createProgram(gl, ...sources) {
  const program = gl.createProgram();
  sources.forEach((source, index) => {
    const shader = gl.createShader(index ? gl.FRAGMENT_SHADER : gl.VERTEX_SHADER);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  });
  gl.linkProgram(program);
  if (gl.getProgramParameter(program, gl.LINK_STATUS)) return program;
  throw new Error(gl.getProgramInfoLog(program));
}
