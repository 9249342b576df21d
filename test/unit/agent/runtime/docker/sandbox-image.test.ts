/** Tests how a missing image of pod sandboxes is provided. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { extract } from 'tar-stream';
import { PAUSE_IMAGE } from '../../../../../agent/runtime/images/pause-image.ts';
import { SandboxImage } from '../../../../../agent/runtime/docker/sandbox-image.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';

const never = (): Promise<never> => Promise.reject(new Error('not asked for'));

async function namesIn(archive: NodeJS.ReadableStream): Promise<string[]> {
  const names: string[] = [];
  const reader = extract();
  archive.pipe(reader);
  for await (const entry of reader) {
    names.push(entry.header.name);
    entry.resume();
  }
  return names;
}

test("the agent's own image is loaded once for all waiting pods, and again after it was removed", async () => {
  const loaded: string[][] = [];
  const load = async (archive: string | NodeJS.ReadableStream): Promise<string[]> => {
    assert.ok(typeof archive !== 'string');
    loaded.push(await namesIn(archive));
    return [PAUSE_IMAGE];
  };
  const image = new SandboxImage({ load, pull: never }, PAUSE_IMAGE, silentLogger);
  const { signal } = new AbortController();
  await Promise.all([image.provide(signal), image.provide(signal)]);
  assert.equal(loaded.length, 1);
  assert.ok(loaded[0]?.includes('manifest.json'));
  await image.provide(signal);
  assert.equal(loaded.length, 2);
});

test('another image is pulled, and the next pod retries a failed pull', async () => {
  const pulled: string[] = [];
  const pull = (reference: string): Promise<string> => {
    pulled.push(reference);
    return pulled.length === 1 ? Promise.reject(new Error('no route')) : Promise.resolve('sha256:1');
  };
  const image = new SandboxImage({ load: never, pull }, 'registry.example/pause:3', silentLogger);
  const { signal } = new AbortController();
  await assert.rejects(image.provide(signal), /no route/);
  await image.provide(signal);
  assert.deepEqual(pulled, ['registry.example/pause:3', 'registry.example/pause:3']);
});
