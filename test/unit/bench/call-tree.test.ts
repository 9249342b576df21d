import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuTree, heapTree, sharesByPart, type CallFrame } from '../../bench/call-tree.ts';
import { flameGraphHtml } from '../../bench/flame-graph.ts';

const frame = (functionName: string, url = ''): CallFrame => ({ functionName, url, lineNumber: 0 });
const partOf = ({ url }: CallFrame): string | undefined => (url === '' ? undefined : url);

const PROFILE = {
  nodes: [
    { id: 1, callFrame: frame('(root)'), children: [2, 5, 6] },
    { id: 2, callFrame: frame('serve', 'server'), children: [3, 4] },
    { id: 3, callFrame: frame('parse', 'codec'), children: [7] },
    { id: 4, callFrame: frame('stringify') },
    { id: 5, callFrame: frame('(idle)') },
    { id: 6, callFrame: frame('tls') },
    { id: 7, callFrame: frame('native') },
  ],
  samples: [2, 3, 3, 4, 5, 6, 7],
  timeDeltas: [1, 2, 4, 8, 100, 16, 32],
};

test('a call tree sums the time of samples by function, without the time in which the thread waited', () => {
  const tree = cpuTree(PROFILE);
  assert.equal(tree.total, 63);
  const [serve] = tree.children.values();
  assert.deepEqual([serve?.frame.functionName, serve?.self, serve?.total], ['serve', 1, 47]);
});

test('the time of calls outside of the project counts for the part that makes them', () => {
  const shares = sharesByPart(cpuTree(PROFILE), partOf, 'node');
  assert.deepEqual(
    [...shares],
    [
      ['codec', 38],
      ['node', 16],
      ['server', 9],
    ],
  );
});

test('calls of one function by one caller are merged in a tree of allocations', () => {
  const leaf = (selfSize: number) => ({ callFrame: frame('make', 'codec'), selfSize, children: [] });
  const tree = heapTree({ callFrame: frame('(root)'), selfSize: 0, children: [leaf(3), leaf(4)] });
  assert.deepEqual(
    [...tree.children.values()].map(({ total }) => total),
    [7],
  );
});

test('a flame graph draws each frame under its caller and escapes names', () => {
  const tree = heapTree({
    callFrame: frame('(root)'),
    selfSize: 0,
    children: [{ callFrame: frame('<script>', 'codec'), selfSize: 5, children: [] }],
  });
  const html = flameGraphHtml({ title: 'a & b', tree, format: (bytes) => `${bytes} B`, place: (url) => url });
  assert.match(html, /<h1>a &amp; b<\/h1>/);
  assert.match(
    html,
    /<title>&lt;script&gt; codec: 5 B, 100.0 %; by itself 5 B<\/title><rect x="0.0" y="17" width="1600.0"/,
  );
  assert.doesNotMatch(html, /<script/);
});
