/** Kubeconfig files: their mode, how several are merged, and what their errors name. */
import assert from 'node:assert/strict';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { loadKubeconfig, newKubeconfig, serverAccess, writeKubeconfig } from '../../../../api/client/kubeconfig.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('a written kubeconfig is readable by its owner only, and can be read; errors name the file and the remedy', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'deep', 'config');
  const pem = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n';
  await writeKubeconfig(
    path,
    newKubeconfig({ cluster: 'c', server: 'https://h:1', ca: pem, user: 'u', credentials: { token: 't' } }),
  );
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const access = await serverAccess(await loadKubeconfig(path), { clock: systemClock });
  assert.equal(access.server, 'https://h:1');
  assert.equal(access.ca, pem);
  assert.deepEqual(await access.credentials.current(), { authorization: 'Bearer t' });
  const other = join(directory, 'other');
  await writeFile(other, 'current-context: x\ncontexts:\n- name: x\n  context: {cluster: c, user: nobody}\n');
  const merged = await loadKubeconfig(undefined, { KUBECONFIG: `${other}:${join(directory, 'missing')}:${path}` });
  await assert.rejects(serverAccess(merged, { clock: systemClock }), /has no user "nobody", which context "x" names/);
  await assert.rejects(
    loadKubeconfig(join(directory, 'none')),
    /none does not exist; name another with --kubeconfig or KUBECONFIG/,
  );
  assert.match(await readFile(path, 'utf8'), /^apiVersion: v1/);
  await assert.rejects(writeKubeconfig(join(path, 'below-a-file', 'config'), {}), {
    name: 'KubeconfigError',
    message: /below-a-file\/config cannot be written: /,
  });
});

test('a user with a token and a token file presents the file, and the token while the file cannot be read', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'config');
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server: 'https://h:1' } }],
    users: [{ name: 'u', user: { token: 'initial', tokenFile: 'token' } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  await writeKubeconfig(path, config);
  const { credentials } = await serverAccess(await loadKubeconfig(path), { clock: systemClock });
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer initial' });
  await writeFile(join(directory, 'token'), 'replaced\n');
  credentials.refused?.();
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer replaced' });
});

test('users who act as others, or have a former authentication provider, are refused', async () => {
  const path = join(temporaryFolder(), 'config');
  const access = async (user: object): Promise<unknown> => {
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: 'https://h:1' } }],
      users: [{ name: 'u', user: { token: 't', ...user } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    };
    await writeKubeconfig(path, config);
    return serverAccess(await loadKubeconfig(path), { clock: systemClock });
  };
  for (const [name, user] of Object.entries({
    as: { as: 'ann' },
    'as-groups': { as: '', 'as-groups': ['admins'] },
    'as-user-extra': { 'as-user-extra': { scope: ['all'] } },
    'auth-provider': { 'auth-provider': { name: 'oidc' } },
  }))
    await assert.rejects(access(user), {
      name: 'KubeconfigError',
      message: new RegExp(`config: a user has "${name}"`),
    });
  await access({ as: '', 'as-groups': [] });
});
