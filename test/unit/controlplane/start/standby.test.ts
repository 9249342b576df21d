/** Tests how the start of a control plane and its role depend on each other. */
import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { test } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { storageBackendOf } from '../../../../controlplane/options/storage.ts';
import { issue, readAuthority } from '../../../../controlplane/security/pki/authority.ts';
import { writeRole } from '../../../../controlplane/standby/role.ts';
import { API_VERSION } from '../../../../controlplane/start/api-server.ts';
import type { Serving } from '../../../../controlplane/start/serve.ts';
import { servicePortsOf } from '../../../../controlplane/start/stores.ts';
import { peersOf, stopFormerFirst } from '../../../../controlplane/start/peers.ts';
import type { Parts } from '../../../../controlplane/start/parts.ts';
import { openStandby } from '../../../../controlplane/start/standby.ts';
import { readFileSync } from 'node:fs';
import { temporaryFolder } from '../../../temporary-folder.ts';

const flagsOf = (change: Partial<ControlPlaneFlags>): ControlPlaneFlags => ({
  ...parseFlags(controlPlaneFlags, []).values,
  ...change,
});

test('a standby needs the URL of another control plane, a database of SQLite, and the keys of the cluster', async (t) => {
  const dataDir = temporaryFolder();
  t.after(() => rm(dataDir, { recursive: true }));
  const open = (change: Partial<ControlPlaneFlags>): Promise<unknown> =>
    openStandby({
      flags: flagsOf({ dataDir, standbyOf: 'https://10.0.0.1:6443', ...change }),
      clock: systemClock,
      logger: silentLogger,
      onFatal: (error) => assert.fail(error),
    });
  for (const standbyOf of ['http://10.0.0.1:6443', '10.0.0.1', 'https://10.0.0.1:6443/path'])
    await assert.rejects(open({ standbyOf }), /--standby-of must be the URL of the first control plane/);
  await assert.rejects(
    open({ etcdServers: ['http://127.0.0.1:2379'] }),
    /on etcd, several control planes run at a time/,
  );
  await assert.rejects(open({}), /lacks the keys of the cluster/);
  assert.deepEqual(await readdir(dataDir), [], 'nothing is created before');
});

test('a control plane on etcd has no standby, and asks no former first', () => {
  const flags = flagsOf({ etcdServers: ['http://127.0.0.1:2379'] });
  assert.equal(storageBackendOf(flags), 'etcd3');
  assert.equal(peersOf({ flags } as Parts), undefined);
  assert.equal(stopFormerFirst({ flags } as Parts, 6443), undefined);
});

test('node ports are those of the flag, or those of Kubernetes where it says none', () => {
  assert.deepEqual(servicePortsOf(flagsOf({ serviceNodePortRange: '31000-31010' })), { from: 31_000, to: 31_010 });
  assert.deepEqual(servicePortsOf(flagsOf({ serviceNodePortRange: '' })), { from: 30_000, to: 32_767 });
});

test('a control plane serves its log to peers beside the API, and does not start on the data of a former first', async (t) => {
  const dataDir = temporaryFolder();
  t.after(() => rm(dataDir, { recursive: true }));
  const flags = { dataDir, bindAddress: '127.0.0.1', securePort: 0, scheduler: false, controllers: ['-*'] };
  const plane = await startControlPlane({ flags });
  const { url }: Pick<Serving, 'url'> = plane;
  const { body: answer } = await new HttpClient({ server: url, ca: plane.ca, clock: systemClock }).raw({
    method: 'GET',
    path: '/version',
  });
  assert.equal(((await json(answer)) as { gitVersion: string }).gitVersion, API_VERSION.gitVersion);
  const read = (name: string): string => readFileSync(join(dataDir, 'pki', name), 'utf8');
  const codeOf = async (ca: string): Promise<number> => {
    const authority = readAuthority(read(`${ca}.crt`), read(`${ca}.key`), ca);
    const subject = { commonName: 'orchlet-control-plane', organizations: ['system:masters'] };
    const made = await issue({ subject, usages: ['client auth'], lifetimeMs: 60_000 }, authority, Date.now());
    const credentials = {
      current: () => Promise.resolve({ certificate: made.certificatePem, key: made.privateKeyPem }),
    };
    const client = new HttpClient({ server: plane.url, ca: plane.ca, clock: systemClock, credentials });
    try {
      const { body, status } = await client.raw({ method: 'GET', path: '/orchlet/control-plane/first' });
      body.destroy();
      return status;
    } catch (error) {
      if (isStatusError(error)) return error.code;
      throw error;
    } finally {
      client.close();
    }
  };
  assert.deepEqual([await codeOf('front-proxy-ca'), await codeOf('ca')], [200, 403]);
  await plane.close();
  await writeRole(dataDir, { role: 'fenced', by: 'https://10.0.0.2:6443', atMs: 1 });
  await assert.rejects(startControlPlane({ flags }), /https:\/\/10\.0\.0\.2:6443 took the place of this one/);
});
