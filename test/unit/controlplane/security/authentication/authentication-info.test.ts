/** Tests the ConfigMap from which aggregated servers learn how to authenticate this server's requests. */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { configMaps } from '../../../../../api/client/resources.ts';
import { typedClient } from '../../../../../api/client/typed-client.ts';
import { isNotFound } from '../../../../../api/meta/status-error.ts';
import {
  keepAuthenticationInfo,
  mergedData,
} from '../../../../../controlplane/security/authentication/authentication-info.ts';
import { ensureAuthority } from '../../../../../controlplane/security/pki/authority.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

test('the CAs and headers are published, restored after a deletion, and follow the files', async () => {
  let authority = 'first';
  const clock = new FakeClock();
  const client = typedClient(new FakeClient(clock));
  const bundle = (pem: () => string) => ({ certificates: () => [], pem });
  const published = await keepAuthenticationInfo({
    info: {
      clientCa: bundle(() => authority),
      frontProxyCa: bundle(() => 'proxies'),
      allowedNames: ['front-proxy-client'],
      usernameHeaders: ['X-Remote-User'],
      uidHeaders: ['X-Remote-Uid'],
      groupHeaders: ['X-Remote-Group'],
      extraHeadersPrefix: ['X-Remote-Extra-'],
    },
    isShared: false,
    client,
    clock,
    logger: silentLogger,
  });
  const read = () => client.get(configMaps, 'kube-system', 'extension-apiserver-authentication');
  assert.deepEqual((await read()).data, {
    'client-ca-file': 'first',
    'requestheader-allowed-names': '["front-proxy-client"]',
    'requestheader-client-ca-file': 'proxies',
    'requestheader-extra-headers-prefix': '["X-Remote-Extra-"]',
    'requestheader-group-headers': '["X-Remote-Group"]',
    'requestheader-uid-headers': '["X-Remote-Uid"]',
    'requestheader-username-headers': '["X-Remote-User"]',
  });
  authority = 'second';
  await client.update(configMaps, { ...(await read()), data: { ...(await read()).data, own: 'stays' } });
  await clock.advance(20_000);
  assert.equal((await read()).data?.['client-ca-file'], 'second');
  assert.equal((await read()).data?.['own'], 'stays');
  await client.delete(configMaps, 'kube-system', 'extension-apiserver-authentication');
  await assert.rejects(read(), isNotFound);
  await clock.advance(20_000);
  assert.equal((await read()).data?.['client-ca-file'], 'second');
  await published.close();
});

test('servers on one storage add to what others published, and none overwrites another', async () => {
  const nowMs = Date.UTC(2040, 0, 2);
  const authority = async (name: string, bornMs: number): Promise<string> => {
    const directory = temporaryFolder();
    const { certificatePem } = await ensureAuthority(directory, 'ca', name, bornMs);
    await rm(directory, { recursive: true });
    return certificatePem;
  };
  const [first, second] = [await authority('first', nowMs), await authority('second', nowMs)];
  const expired = await authority('expired', Date.UTC(2026, 0, 1));
  const published = {
    'client-ca-file': `${expired}${first}`,
    'requestheader-allowed-names': '["one"]',
    'requestheader-username-headers': 'no list',
    other: 'stays',
  };
  const own = {
    'client-ca-file': second,
    'requestheader-allowed-names': '["two","one"]',
    'requestheader-username-headers': '["X-Remote-User"]',
  };
  const merged = mergedData(published, own, nowMs);
  assert.deepEqual(merged, {
    'client-ca-file': `${first.trim()}\n${second.trim()}\n`,
    'requestheader-allowed-names': '["one","two"]',
    'requestheader-username-headers': '["X-Remote-User"]',
    other: 'stays',
  });
  assert.deepEqual(mergedData(merged, own, nowMs), merged);
  assert.deepEqual(mergedData(merged, { 'client-ca-file': first }, nowMs), merged);
  assert.equal(mergedData({ 'client-ca-file': '-----BEGIN' }, own, nowMs)['client-ca-file'], `${second.trim()}\n`);
});
