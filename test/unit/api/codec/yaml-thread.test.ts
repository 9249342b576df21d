/** Tests the parser of YAML that hands large texts to a thread. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createYamlThread } from '../../../../api/codec/yaml-thread.ts';
import { parseYaml } from '../../../../api/codec/yaml.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const members = (count: number): string =>
  Array.from({ length: count }, (_, at) => `k${count - at}: v${at}\n`).join('');
const large = Buffer.from(`${members(20_000)}big: 9223372036854775807\n__proto__: {a: 1}\n`);

/** Returns the processor time of this thread. */
const usedMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

describe('a large YAML text', () => {
  const yaml = createYamlThread({ clock: new FakeClock() });

  it('is parsed as a small one, in the given order and sorted', async () => {
    const { value } = parseYaml(large);
    const given = await yaml.first(large);
    assert.deepEqual(given, { value, duplicates: [] });
    assert.deepEqual(Object.keys(given.value as object), Object.keys(value as object));
    const sorted = await yaml.first(large, { sorted: true });
    assert.deepEqual(sorted.value, value);
    assert.deepEqual(Object.keys(sorted.value as object), Object.keys(value as object).sort());
    assert.deepEqual(await yaml.all(Buffer.concat([large, Buffer.from('---\na: 1\n')])), [value, { a: 1 }]);
  });

  it('reports duplicate keys', async () => {
    const { duplicates } = await yaml.first(Buffer.from(`a: 1\na: 2\n${members(10_000)}`));
    assert.deepEqual(duplicates, ['line 2: key "a" already set in map']);
  });

  it('is refused with the message of a small one, and the next one is parsed', async () => {
    await assert.rejects(async () => yaml.first(Buffer.from(`${members(10_000)}a: [\n`)), {
      name: 'YamlSyntaxError',
      message: /^yaml: line 10001: did not find expected node content$/,
    });
    assert.ok(await yaml.first(large));
  });

  it('does not occupy the event loop', async () => {
    const text = Buffer.from(`a: [${'[],'.repeat(1_000_000)}]`);
    const from = usedMs();
    assert.throws(() => parseYaml(text), /exceeded the limit/);
    const own = usedMs() - from;
    const before = usedMs();
    await assert.rejects(async () => yaml.first(text), /exceeded the limit/);
    const rest = usedMs() - before;
    assert.ok(rest < own / 4, `${rest} of ${own} ms`);
  });

  it('is not parsed once its client is gone', async () => {
    const gone = new AbortController();
    const first = yaml.first(large);
    const second = yaml.first(large, { signal: gone.signal });
    gone.abort(new Error('gone'));
    await assert.rejects(async () => second, /gone/);
    assert.ok(await first);
  });
});

it('a YAML text that takes too long is refused, and the next one is parsed', async () => {
  const clock = new FakeClock();
  const yaml = createYamlThread({ clock });
  const late = Promise.resolve(yaml.first(Buffer.from(`a: [${'[],'.repeat(1_000_000)}]`)));
  const refused = assert.rejects(late, { name: 'YamlSyntaxError', message: /takes more than 20 seconds/ });
  await clock.advance(20_000);
  await refused;
  assert.ok(await yaml.first(large));
});

it('the last ones of many large YAML texts at once are refused', async () => {
  const yaml = createYamlThread({ clock: new FakeClock() });
  const text = Buffer.from(members(7_000));
  const all = await Promise.allSettled(Array.from({ length: 150 }, () => yaml.first(text)));
  const refused = all.filter(({ status }) => status === 'rejected');
  assert.equal(refused.length, 49);
  for (const one of refused) assert.equal(((one as PromiseRejectedResult).reason as { code: number }).code, 429);
});

const threads = (): number => (process.report.getReport() as { workers: unknown[] }).workers.length;

it('the thread stops when it is idle, and starts again', async () => {
  const clock = new FakeClock();
  const yaml = createYamlThread({ clock });
  await yaml.first(large);
  const running = threads();
  await clock.advance(30_000);
  while (threads() >= running) await setImmediate();
  assert.ok(await yaml.first(large));
});
