import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';
import type { CredentialProvider } from '../../../../../agent/runtime/images/credential-provider-config.ts';
import { runCredentialPlugin } from '../../../../../agent/runtime/images/credential-plugin.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

it('a password whose characters arrive in parts is that of the plugin', async (t) => {
  const binDirectory = await mkdtemp(join(tmpdir(), 'credential-plugin-'));
  t.after(() => rm(binDirectory, { recursive: true, force: true }));
  const apiVersion = 'credentialprovider.kubelet.k8s.io/v1';
  // An odd number of bytes stands before characters of two bytes, so that a chunk ends within one.
  const auth = { 'r.example': { username: 'u', password: `${'x'.repeat(2)}${'é'.repeat(200_000)}` } };
  for (const pad of ['', 'x']) {
    const response = { kind: 'CredentialProviderResponse', apiVersion, cacheKeyType: `Image`, pad, auth };
    await writeFile(join(binDirectory, 'answer'), JSON.stringify(response));
    await writeFile(join(binDirectory, 'plugin'), '#!/bin/sh\ncat "$(dirname "$0")/answer"\n');
    await chmod(join(binDirectory, 'plugin'), 0o755);
    const provider = { name: 'plugin', apiVersion, args: [], env: {} } as unknown as CredentialProvider;
    const request = { provider, binDirectory, image: 'r.example/a', token: undefined, annotations: undefined };
    const { auth: given } = await runCredentialPlugin({ ...request, clock: new FakeClock() });
    assert.deepEqual(given, auth);
  }
});
