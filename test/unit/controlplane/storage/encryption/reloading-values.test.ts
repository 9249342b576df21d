/**
 * Tests values of a configuration that is replaced: what is authenticated with them, and how long the previous one decrypts.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { encryptedValues } from '../../../../../controlplane/storage/encryption/encrypted-values.ts';
import { keyProviders } from '../../../../../controlplane/storage/encryption/provider.ts';
import { reloadingValues } from '../../../../../controlplane/storage/encryption/reloading-values.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const KEY = '/core/secrets/default/a';
/** The key of kube-apiserver, with which values in etcd are authenticated. */
const CONTEXT = '/registry/secrets/default/a';
const TEXT = Buffer.from('text');

function configuration(name: string) {
  const [provider] = keyProviders('aesgcm', [{ name, secret: randomBytes(32) }]);
  assert.ok(provider !== undefined);
  return encryptedValues([{ resources: ['secrets'], providers: [provider] }]);
}

test('a value is authenticated with the context that the storage gives, as without reload', () => {
  const first = configuration('a');
  const values = reloadingValues(first, new FakeClock());
  const sealed = values.seal(KEY, TEXT, CONTEXT);
  assert.deepEqual(first.open(KEY, sealed, CONTEXT), TEXT);
  assert.deepEqual(values.open(KEY, first.seal(KEY, TEXT, CONTEXT), CONTEXT), TEXT);
  assert.throws(() => values.open(KEY, sealed));
});

test('the previous configuration decrypts for a minute, with its context too', async () => {
  const clock = new FakeClock();
  const values = reloadingValues(configuration('a'), clock);
  const [before, inContext] = [values.seal(KEY, TEXT), values.seal(KEY, TEXT, CONTEXT)];
  values.replace(configuration('b'));
  await clock.advance(59_000);
  assert.deepEqual(values.open(KEY, before), TEXT);
  assert.deepEqual(values.open(KEY, inContext, CONTEXT), TEXT);
  assert.deepEqual(values.open(KEY, values.seal(KEY, TEXT, CONTEXT), CONTEXT), TEXT);
  await clock.advance(2000);
  assert.throws(() => values.open(KEY, before), new RegExp(KEY));
});

test('keys of both configurations are fetched, and a failure of the previous one is shown by its values alone', async () => {
  const unlocked: string[] = [];
  const fetching = (name: string, fails = false) => ({
    ...configuration(name),
    async unlock() {
      unlocked.push(name);
      if (fails) throw new Error('the key service is gone');
      await Promise.resolve();
    },
  });
  const values = reloadingValues(fetching('a', true), new FakeClock());
  values.replace(fetching('b'));
  await values.unlock([{ key: KEY, value: TEXT }]);
  assert.deepEqual(unlocked.sort(), ['a', 'b']);
});
