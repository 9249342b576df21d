import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { partsInRange, selectBytes } from '../../../../controlplane/server/byte-ranges.ts';

const MODIFIED = Date.parse('2026-01-01T00:00:00Z');
const select = (headers: Readonly<Record<string, string>>) =>
  selectBytes({ header: (name) => headers[name] }, { etag: '"tag"', modifiedMs: MODIFIED + 400, sizeBytes: 100 });

describe('a document of 100 bytes', () => {
  for (const [range, from, to] of [
    ['bytes=0-9', 0, 10],
    ['bytes=90-', 90, 100],
    ['bytes=-5', 95, 100],
    ['bytes=-500', 0, 100],
    ['bytes=99-500', 99, 100],
    ['bytes=300-,5-5', 5, 6],
  ] as const)
    it(`has the range ${range}`, () => assert.deepEqual(select({ range }), { kind: 'range', range: { from, to } }));

  for (const range of ['bytes=x', 'bytes=5-2', 'items=1-2', 'bytes=-', 'bytes=1'])
    it(`has no range for ${range}`, () =>
      assert.deepEqual(select({ range }), { kind: 'unsatisfiable', overlaps: true }));

  it('has no range behind its end', () =>
    assert.deepEqual(select({ range: 'bytes=100-' }), { kind: 'unsatisfiable', overlaps: false }));

  for (const [kind, headers] of [
    ['whole', { range: 'bytes=0-1,4-5' }],
    ['whole', { range: 'bytes=0-1', 'if-range': '"other"' }],
    ['range', { range: 'bytes=0-1', 'if-range': '"tag"' }],
    ['range', { range: 'bytes=0-1', 'if-range': 'Thu, 01 Jan 2026 00:00:00 GMT' }],
    ['not-modified', { 'if-none-match': 'W/"tag"', range: 'bytes=0-1' }],
    ['not-modified', { 'if-modified-since': 'Thu, 01 Jan 2026 00:00:00 GMT' }],
    ['whole', { 'if-modified-since': 'Wed, 31 Dec 2025 00:00:00 GMT' }],
    ['whole', { 'if-modified-since': 'Thu, 01 Jan 2026 00:00:00 GMT', 'if-none-match': '"other"' }],
    ['failed', { 'if-match': 'W/"tag"' }],
    ['whole', { 'if-match': '"other", "tag"' }],
    ['failed', { 'if-unmodified-since': 'Wed, 31 Dec 2025 00:00:00 GMT' }],
    ['whole', {}],
  ] as const)
    it(`is ${kind} for ${JSON.stringify(headers)}`, () => assert.equal(select(headers).kind, kind));

  it('is cut out of its parts', async () => {
    async function* parts(): AsyncGenerator<Buffer> {
      for (const text of ['abc', 'def', 'ghi']) yield Buffer.from(text);
    }
    const cut: string[] = [];
    for await (const part of partsInRange(parts(), { from: 2, to: 5 })) cut.push(part.toString());
    assert.deepEqual(cut, ['c', 'de']);
  });
});
