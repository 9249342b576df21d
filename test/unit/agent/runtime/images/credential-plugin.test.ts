import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import type { CredentialProvider } from '../../../../../agent/runtime/images/credential-provider-config.ts';
import { runCredentialPlugin } from '../../../../../agent/runtime/images/credential-plugin.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

it('a password whose characters arrive in parts is that of the plugin', async () => {
  const binDirectory = temporaryFolder();
  const apiVersion = 'credentialprovider.kubelet.k8s.io/v1';
  const auth = { 'r.example': { username: 'u', password: 'é'.repeat(200_000) } };
  // With one of the two pads, an odd number of bytes precedes the characters of two bytes, so that a chunk ends within one.
  for (const pad of ['', 'x']) {
    const response = { kind: 'CredentialProviderResponse', apiVersion, cacheKeyType: 'Image', pad, auth };
    await writeFile(join(binDirectory, 'answer'), JSON.stringify(response));
    await writeFile(join(binDirectory, 'plugin'), '#!/bin/sh\ncat "$(dirname "$0")/answer"\n');
    await chmod(join(binDirectory, 'plugin'), 0o755);
    const provider = { name: 'plugin', apiVersion, args: [], env: {} } as unknown as CredentialProvider;
    const request = { provider, binDirectory, image: 'r.example/a', token: undefined, annotations: undefined };
    const { auth: given } = await runCredentialPlugin({ ...request, clock: new FakeClock(), observe: undefined });
    assert.deepEqual(given, auth);
  }
});
