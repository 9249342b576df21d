import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import dnsPacket, { type Answer } from 'dns-packet';
import { answersQuestion, messageTtls } from '../../../../../agent/network/clusterdns/message-ttls.ts';
import { ResponseCache } from '../../../../../agent/network/clusterdns/response-cache.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const query = (name = 'example.org', id = 1, type: 'A' | 'TXT' = 'A'): Buffer =>
  dnsPacket.encode({ type: 'query', id, flags: dnsPacket.RECURSION_DESIRED, questions: [{ name, type }] });

const record = (ttl: number, name = 'example.org'): Answer => ({ type: 'A', name, ttl, data: '203.0.113.5' });
const authority = (ttl: number, minimum: number): Answer => ({
  type: 'SOA',
  name: 'org',
  ttl,
  data: { mname: 'a.org', rname: 'b.org', serial: 1, refresh: 1, retry: 1, expire: 1, minimum },
});

function response(
  to: Buffer,
  answers: readonly Answer[],
  more: { readonly flags?: number; readonly authorities?: readonly Answer[] } = {},
): Buffer {
  const { id = 0, questions = [] } = dnsPacket.decode(to);
  return dnsPacket.encode({
    type: 'response',
    id,
    flags: more.flags ?? 0,
    questions,
    answers: [...answers],
    authorities: [...(more.authorities ?? [])],
  });
}

function setUp(most?: { readonly responses: number; readonly bytes: number }) {
  const clock = new FakeClock();
  const counts = { hits: [] as string[], misses: 0, asked: 0 };
  const cache = new ResponseCache({
    clock,
    observer: { hit: (type) => counts.hits.push(type), miss: () => (counts.misses += 1) },
    ...(most === undefined ? {} : { most }),
  });
  const ask = (asked: Buffer, answer: (to: Buffer) => Buffer): Promise<Buffer> =>
    cache.resolve(asked, 'udp', () => {
      counts.asked += 1;
      return Promise.resolve(answer(asked));
    });
  return { clock, cache, counts, ask };
}

describe('the cache of responses', () => {
  it('reuses a response with the id of the query and a TTL that shrinks, for as long as it is valid', async () => {
    const { clock, counts, ask } = setUp();
    const fresh = (to: Buffer): Buffer => response(to, [record(20), record(300)]);
    await ask(query(), fresh);
    await clock.advance(7000);
    const { id, answers } = dnsPacket.decode(await ask(query('example.org', 9), fresh));
    assert.deepEqual([id, answers?.map((answer) => (answer as { ttl?: number }).ttl)], [9, [13, 293]]);
    await clock.advance(14_000);
    await ask(query(), fresh);
    assert.deepEqual(counts, { hits: ['success'], misses: 2, asked: 2 });
  });

  it('keeps nothing longer than half a minute, and denials as long as their zone says', async () => {
    const { clock, counts, ask } = setUp();
    const long = (to: Buffer): Buffer => response(to, [record(86_400)]);
    const denial = (to: Buffer): Buffer => response(to, [], { flags: 3, authorities: [authority(900, 12)] });
    await ask(query('long'), long);
    await ask(query('none'), denial);
    await clock.advance(11_000);
    await ask(query('none'), denial);
    assert.deepEqual(counts.hits, ['denial']);
    await clock.advance(2000);
    await ask(query('none'), denial);
    assert.equal(counts.asked, 3);
    await clock.advance(18_000);
    await ask(query('long'), long);
    assert.equal(counts.asked, 4);
  });

  it('sends a query again after errors, truncated responses, denials without a limit, a TTL of 0, and answers to another question', async () => {
    const { counts, ask } = setUp();
    const responses: readonly ((to: Buffer) => Buffer)[] = [
      (to) => response(to, [], { flags: 2 }),
      (to) => response(to, [record(60)], { flags: dnsPacket.TRUNCATED_RESPONSE }),
      (to) => response(to, []),
      (to) => response(to, [record(0)]),
      () => response(query('other.org'), [record(60, 'other.org')]),
      (to) => response(to, [record(60)]).subarray(0, 40),
    ];
    for (const answer of responses) {
      await ask(query(), answer);
      await ask(query(), answer);
    }
    assert.equal(counts.asked, 2 * responses.length);
    assert.deepEqual(counts.hits, []);
  });

  it('distinguishes queries by everything but their id', async () => {
    const { cache, counts, ask } = setUp();
    const answer = (to: Buffer): Buffer => response(to, [record(60)]);
    await ask(query(), answer);
    await ask(query('Example.org'), answer);
    await ask(query('example.org', 1, 'TXT'), answer);
    assert.equal(counts.asked, 3);
    await cache.resolve(query(), 'tcp', () => Promise.resolve(answer(query())));
    assert.deepEqual(counts.hits, []);
  });

  it('asks once for equal queries at the same time, and gives each its own response', async () => {
    const { cache } = setUp();
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    let asked = 0;
    const ask = (id: number): Promise<Buffer> =>
      cache.resolve(query('example.org', id), 'udp', () => {
        asked += 1;
        return promise;
      });
    const both = [ask(5), ask(6)];
    resolve(response(query('example.org', 5), [record(60)]));
    assert.deepEqual(
      (await Promise.all(both)).map((each) => each.readUInt16BE(0)),
      [5, 6],
    );
    assert.equal(asked, 1);
    const failing = cache.resolve(query('fails'), 'udp', () => Promise.reject(new Error('no answer in time')));
    await assert.rejects(failing, /no answer in time/);
    await cache.resolve(query('fails'), 'udp', () => Promise.resolve(response(query('fails'), [])));
  });

  it('is bounded in responses and bytes, and empty after it was cleared', async () => {
    const { cache, ask } = setUp({ responses: 3, bytes: 10_000 });
    for (const name of ['a', 'b', 'c', 'd', 'e']) await ask(query(name), (to) => response(to, [record(60)]));
    assert.equal(cache.size, 3);
    cache.clear();
    assert.equal(cache.size, 0);
    const small = setUp({ responses: 100, bytes: 200 });
    for (const name of ['a', 'b', 'c', 'd', 'e']) await small.ask(query(name), (to) => response(to, [record(60)]));
    assert.ok(small.cache.size < 5);
  });
});

describe('the TTLs of a message', () => {
  it('are read from no message that lies about its lengths', () => {
    const whole = response(query(), [record(60), record(61)], { authorities: [authority(1, 1)] });
    assert.equal(messageTtls(whole)?.offsets.length, 3);
    for (let length = 0; length < whole.length; length++)
      assert.equal(messageTtls(whole.subarray(0, length)), undefined);
    for (let at = 0; at < whole.length; at++)
      for (const byte of [0, 63, 64, 192, 255]) {
        const broken = Buffer.from(whole);
        broken[at] = byte;
        for (const offset of messageTtls(broken)?.offsets ?? []) assert.ok(offset + 4 <= broken.length);
        answersQuestion(query(), broken);
      }
  });
});
