/** Tests how the agent treats FIFOs and other files in the place of those that it has written for itself. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { HOST_RECORD_FILE, readHostRecord } from '../../../../../agent/host/host-record.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { AddressBinder } from '../../../../../agent/network/podaddresses/address-binder.ts';
import { recordedDirectory } from '../../../../../agent/network/podnetwork/cni-configuration.ts';
import { readKeys } from '../../../../../agent/network/podnetwork/wireguard-keys.ts';
import { loadServers } from '../../../../../agent/node/known-servers.ts';
import { UserNamespaces } from '../../../../../agent/runtime/kuberuntime/user-namespaces.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const surroundings = { clock: systemClock, logger: silentLogger };

/** Binds a pod to an address with the bindings of a file. Reaches nothing of the host. */
async function bindWith(file: string): Promise<void> {
  const unused = (): never => assert.fail('the bindings are read first');
  const binder = new AddressBinder({
    ...surroundings,
    ...{ table: 't', file: async () => file, processOf: unused, onUnbound: unused },
    nft: { run: unused, problem: unused, hasTable: unused },
    ports: { find: unused, list: unused } as never,
  });
  await binder.bind('sandbox', ['10.0.0.1']);
}

function mappingBeside(root: string): Promise<unknown> {
  const namespaces = new UserNamespaces({
    rootDirectory: root,
    idsPerPod: 65_536,
    range: { firstId: 65_536, length: 65_536 * 10 },
  });
  return namespaces.mapping({ metadata: { uid: 'b' }, spec: { hostUsers: false } } as unknown as Pod);
}

/** The name of each file below the directory of the agent, and what reads it. */
const FILES: Readonly<Record<string, (root: string, path: string) => Promise<unknown>>> = {
  'api-servers.json': (root) => loadServers({ ...surroundings, configured: [], directory: root }),
  [HOST_RECORD_FILE]: (root) => readHostRecord(root),
  'cni-directory': (root) => recordedDirectory(root),
  'bindings.json': (_root, path) => bindWith(path),
  'wireguard.key': (_root, path) => readKeys(path),
  'pods/a/userns': (root) => mappingBeside(root),
};

/** Resolves to `read` or `refused`; rejects if neither comes of it. */
async function outcome(path: string, work: () => Promise<unknown>): Promise<string> {
  const timeout = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    // Whoever waits for the FIFO goes on.
    closeSync(openSync(path, constants.O_RDWR | constants.O_NONBLOCK));
    timeout.reject(new Error('the file is waited for'));
  }, 3000);
  const done = work().then(
    () => 'read',
    () => 'refused',
  );
  return Promise.race([done, timeout.promise]).finally(() => clearTimeout(timer));
}

describe('a file that the agent keeps for itself', () => {
  const parent = temporaryFolder();
  const rootOf = (name: string): string => {
    const root = join(parent, name.replaceAll('/', '-'));
    mkdirSync(join(root, 'pods/a'), { recursive: true });
    return root;
  };

  for (const [name, read] of Object.entries(FILES)) {
    it(`is not waited for where a FIFO has taken its place: ${name}`, async () => {
      const root = rootOf(name);
      execFileSync('mkfifo', [join(root, name)]);
      await outcome(join(root, name), () => read(root, join(root, name)));
    });
  }

  for (const text of ['null', '{"uidMappings":{},"gidMappings":[]}', '{"uidMappings":[null],"gidMappings":[null]}'])
    it(`lets no pod have ids of another one where it has other content: ${text}`, async () => {
      const root = rootOf(`mapping-${Buffer.from(text).toString('hex')}`);
      writeFileSync(join(root, 'pods/a/userns'), text);
      await assert.rejects(mappingBeside(root), /userns: not one mapping; delete the pod, then remove the file/);
    });

  it('is named in the error where pods cannot start without it', async () => {
    const path = join(rootOf('bindings'), 'bindings.json');
    writeFileSync(path, '{}');
    await assert.rejects(bindWith(path), new RegExp(`remove ${path}$`));
  });
});
