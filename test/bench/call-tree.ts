/**
 * Builds call trees from the profiles of V8, computes the share of each part of the program, and draws them as flame graphs.
 */

/** A function as it is named in the profile. */
export interface CallFrame {
  readonly functionName: string;
  /** A file URL, a path, `node:…`, or an empty text for functions of V8. */
  readonly url: string;
  readonly lineNumber: number;
}

/**
 * The parts of a `.cpuprofile` that are used here: https://chromedevtools.github.io/devtools-protocol/v8/Profiler/#type-Profile
 */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: CallFrame;
    readonly children?: readonly number[];
  }[];
  readonly samples?: readonly number[];
  /** The microseconds since the previous sample. */
  readonly timeDeltas?: readonly number[];
}

/** https://chromedevtools.github.io/devtools-protocol/v8/HeapProfiler/#type-SamplingHeapProfileNode */
export interface HeapNode {
  readonly callFrame: CallFrame;
  readonly selfSize: number;
  readonly children: readonly HeapNode[];
}

/** A function below its caller. All calls of one function by one caller are one node. */
export interface CallTree {
  readonly frame: CallFrame;
  /** The microseconds or bytes of the function itself. */
  self: number;
  /** The microseconds or bytes of the function and everything that it calls. */
  total: number;
  readonly children: Map<string, CallTree>;
}

const IDLE: ReadonlySet<string> = new Set(['(idle)', '(program)']);
const ROOT: CallFrame = { functionName: '(root)', url: '', lineNumber: -1 };

const newTree = (frame: CallFrame): CallTree => ({ frame, self: 0, total: 0, children: new Map() });

const keyOf = ({ functionName, url, lineNumber }: CallFrame): string => `${functionName} ${url}:${lineNumber}`;

function childOf(tree: CallTree, frame: CallFrame): CallTree {
  const key = keyOf(frame);
  const found = tree.children.get(key) ?? newTree(frame);
  tree.children.set(key, found);
  return found;
}

/** Returns a tree in microseconds, without the time in which the thread waited. */
export function cpuTree(profile: CpuProfile): CallTree {
  const selfOf = new Map<number, number>();
  profile.samples?.forEach((id, at) => selfOf.set(id, (selfOf.get(id) ?? 0) + (profile.timeDeltas?.[at] ?? 0)));
  const byId = new Map(profile.nodes.map((node) => [node.id, node]));
  const add = (id: number, into: CallTree): void => {
    const node = byId.get(id);
    if (node === undefined || IDLE.has(node.callFrame.functionName)) return;
    const tree = childOf(into, node.callFrame);
    tree.self += selfOf.get(id) ?? 0;
    for (const child of node.children ?? []) add(child, tree);
  };
  const root = newTree(ROOT);
  for (const child of profile.nodes[0]?.children ?? []) add(child, root);
  return summed(root);
}

/** Returns a tree in allocated bytes, including those that were collected while the profiler ran. */
export function heapTree(head: HeapNode): CallTree {
  const add = (node: HeapNode, into: CallTree): void => {
    const tree = childOf(into, node.callFrame);
    tree.self += node.selfSize;
    for (const child of node.children) add(child, tree);
  };
  const root = newTree(ROOT);
  for (const child of head.children) add(child, root);
  return summed(root);
}

function summed(tree: CallTree): CallTree {
  tree.total = tree.self;
  for (const child of tree.children.values()) tree.total += summed(child).total;
  return tree;
}

/**
 * Returns the cost of each part itself. The cost of Node.js, V8 and packages counts for the part that calls them, and for
 * `none` if no part calls them. `partOf` returns the part of a function of this project, and nothing for other functions.
 */
export function sharesByPart(
  tree: CallTree,
  partOf: (frame: CallFrame) => string | undefined,
  none: string,
): ReadonlyMap<string, number> {
  const shares = new Map<string, number>();
  const add = (node: CallTree, caller: string): void => {
    const part = partOf(node.frame) ?? caller;
    if (node.self > 0) shares.set(part, (shares.get(part) ?? 0) + node.self);
    for (const child of node.children.values()) add(child, part);
  };
  add(tree, none);
  return new Map([...shares].toSorted(([, a], [, b]) => b - a));
}
