/** Tests the locks of a network namespace. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { networkNamespace, takeNamespaceLock } from '../../../../agent/network/namespace-lock.ts';
import { POD_NETWORK_LOCK } from '../../../../agent/network/podnetwork/remove-pod-network.ts';
import { PROXY_LOCK } from '../../../../agent/network/serviceproxy/service-proxy.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

describe('a lock of the network namespace', () => {
  it('belongs to one owner until it is released', async () => {
    const directory = temporaryFolder();
    const first = await takeNamespaceLock('one', directory);
    assert.notEqual(first, undefined);
    assert.equal(await takeNamespaceLock('one', directory), undefined);
    const other = await takeNamespaceLock('other', directory);
    assert.notEqual(other, undefined);
    first?.close();
    const next = await takeNamespaceLock('one', directory);
    assert.notEqual(next, undefined);
    next?.close();
    other?.close();
  });

  it('is released when its process is killed', async () => {
    const directory = temporaryFolder();
    const module = join(import.meta.dirname, '../../../../agent/network/namespace-lock.ts');
    const script = `import { takeNamespaceLock } from ${JSON.stringify(module)};
      console.log(await takeNamespaceLock('one', ${JSON.stringify(directory)}) !== undefined);
      setInterval(() => undefined, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    assert.equal(line.toString().trim(), 'true');
    assert.equal(await takeNamespaceLock('one', directory), undefined);
    child.kill('SIGKILL');
    await once(child, 'exit');
    const next = await takeNamespaceLock('one', directory);
    assert.notEqual(next, undefined);
    next?.close();
  });

  it('cannot be taken by users who may not write its directory, as abstract sockets could', async (t) => {
    const directory = temporaryFolder();
    for (const name of [PROXY_LOCK, POD_NETWORK_LOCK]) {
      const socket = createServer();
      t.after(() => socket.close());
      await once(socket.listen(`\0${name}`), 'listening').catch(() => undefined);
      const lock = await takeNamespaceLock(name, directory);
      assert.notEqual(lock, undefined, name);
      lock?.close();
    }
    assert.equal((await stat(join(directory, await networkNamespace()))).mode & 0o777, 0o700);
  });
});
