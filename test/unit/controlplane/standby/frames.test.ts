/** Tests the frames of the stream to a standby. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeFrame, type Frame, FrameError, framesOf } from '../../../../controlplane/standby/frames.ts';

async function* piecesOf(bytes: Buffer, size: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function decoded(bytes: Buffer, size = bytes.length): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const frame of framesOf(piecesOf(bytes, Math.max(1, size)))) frames.push(frame);
  return frames;
}

const framed = (header: string, body = Buffer.alloc(0)): Buffer => {
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32BE(Buffer.byteLength(header), 0);
  prefix.writeUInt32BE(body.length, 4);
  return Buffer.concat([prefix, Buffer.from(header), body]);
};

const record = fc.record({
  gap: fc.integer({ min: 1, max: 1000 }),
  key: fc.string().map((name) => `/core/x/${name}`),
  value: fc.option(fc.uint8Array({ maxLength: 40 }), { nil: undefined }),
  expires: fc.nat(),
});

const records = fc.array(record, { maxLength: 8 }).map((rows): Frame => {
  let revision = 0;
  const revisions = rows.map(({ gap }) => (revision += gap));
  const values = Buffer.concat(rows.map(({ value }) => value ?? new Uint8Array()));
  return {
    type: 'records',
    newestRevision: revision,
    records: {
      revisions,
      keys: rows.map(({ key }) => key),
      createRevisions: revisions,
      expiries: rows.map(({ expires }) => expires),
      lengths: rows.map(({ value }) => value?.length ?? -1),
      values: new Uint8Array(values).buffer,
    },
  };
});

const frame: fc.Arbitrary<Frame> = fc.oneof(
  records,
  fc.uint8Array({ maxLength: 60 }).map((bytes): Frame => ({ type: 'part', bytes: Buffer.from(bytes) })),
  fc.nat().map((sizeBytes): Frame => ({ type: 'snapshot', sizeBytes })),
  fc.constantFrom<Frame>({ type: 'compacted' }, { type: 'preparing' }),
  fc.nat().map((lastRevision): Frame => {
    const lastCompaction = lastRevision % 2 === 0 ? undefined : { revision: lastRevision, atMs: 5 };
    return { type: 'complete', marks: { compactedRevision: 2, lastRevision, lastCompaction }, sentAtMs: 1.5 };
  }),
);

test('frames come out as they went in, however the stream is cut', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(frame, { maxLength: 5 }), fc.integer({ min: 1, max: 64 }), async (frames, size) => {
      const bytes = Buffer.concat(frames.flatMap((one) => encodeFrame(one)));
      assert.deepEqual(await decoded(bytes, size), frames);
    }),
    { numRuns: 200 },
  );
});

const columns = {
  revisions: [5, 6],
  keys: ['/a/b/c', '/a/b/d'],
  createRevisions: [5, 5],
  expiries: [0, 0],
  lengths: [1, -1],
};
const page = (change: object, body = Buffer.from('v')): Buffer =>
  framed(JSON.stringify({ type: 'records', newestRevision: 6, ...columns, ...change }), body);

for (const [name, bytes] of Object.entries({
  'no JSON': framed('{"type":'),
  'no object': framed('null'),
  'an unknown type': framed('{"type":"other"}'),
  'a revision that does not increase': page({ revisions: [6, 6] }),
  'a negative revision': page({ revisions: [-1, 6] }),
  'a revision that is no safe integer': page({ revisions: [5, 2 ** 53] }),
  'columns of different lengths': page({ keys: ['/a/b/c'] }),
  'a key that is no text': page({ keys: ['/a/b/c', 7] }),
  'a key that is no path': page({ keys: ['/a/b/c', 'x'] }),
  'a length below -1': page({ lengths: [1, -2] }),
  'lengths that do not fit the values': page({ lengths: [2, -1] }),
  'values without a record': page({}, Buffer.from('vv')),
  'no newest revision': page({ newestRevision: undefined }),
  'marks that are no numbers': framed('{"type":"complete","marks":{"compactedRevision":"1","lastRevision":2}}'),
  'no marks': framed('{"type":"complete"}'),
  'a header beyond the limit': Buffer.from([0x7f, 0, 0, 0, 0, 0, 0, 0]),
  'a body beyond the limit': Buffer.from([0, 0, 0, 2, 0x7f, 0, 0, 0]),
  'an end within a frame': framed('{"type":"compacted"}').subarray(0, -1),
  'an end within the lengths': Buffer.from([0, 0, 0]),
}))
  test(`${name} is refused`, async () => {
    await assert.rejects(decoded(bytes), FrameError);
  });
