/** Root runs commands on the data directory of another user, who has prepared it. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { silentLogger } from '../../../api/component/logger.ts';
import { systemClock } from '../../../api/machinery/clock.ts';
import { giveToOwner, withRightsOfOwner } from '../../../cli/owner-rights.ts';
import { openSqliteStorage } from '../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { temporaryFolder } from '../../temporary-folder.ts';
import { orchlet } from './command-run.ts';

const OTHER = 65_534;
const quiet = { stderr: { write: () => true } };

/** Gives a tree to the other user; links stay links. */
function give(path: string): void {
  lchownSync(path, OTHER, OTHER);
  if (lstatSync(path).isDirectory()) for (const name of readdirSync(path)) give(join(path, name));
}

describe('root in the data directory of another user', { skip: process.geteuid?.() !== 0 && 'needs root' }, () => {
  let folder = '';
  let data = '';
  let victim = '';
  const kubeconfig = (user: object): string =>
    JSON.stringify({
      kind: 'Config',
      clusters: [{ name: 'a', cluster: { server: 'https://127.0.0.1:1' } }],
      users: [{ name: 'a', user }],
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      'current-context': 'a',
    });

  beforeEach(async () => {
    folder = temporaryFolder();
    chmodSync(folder, 0o755);
    [data, victim] = [join(folder, 'data'), join(folder, 'victim')];
    mkdirSync(victim);
    const storage = await openSqliteStorage({
      directory: join(data, 'storage'),
      clock: systemClock,
      logger: silentLogger,
    });
    await storage.create('/registry/configmaps/default/kept', Buffer.from('{"kept":true}'));
    await storage.close();
    give(data);
  });

  it('saves and restores its data, to and from a file that only root can open', async () => {
    const secret = join(folder, 'of-root');
    mkdirSync(secret, { mode: 0o700 });
    const file = join(secret, 'cluster.tgz');
    const taken = await orchlet(['backup', file, '--data-dir', data]);
    assert.equal(taken.code, 0, taken.stderr);
    assert.deepEqual([statSync(file).uid, statSync(file).mode & 0o777], [0, 0o600]);
    assert.deepEqual(readdirSync(join(data, 'backup')), []);
    rmSync(join(data, 'storage'), { recursive: true });
    const restored = await orchlet(['restore', file, '--data-dir', data]);
    assert.equal(restored.code, 0, restored.stderr);
    assert.equal(statSync(join(data, 'storage/orchlet.db')).uid, OTHER);
    assert.equal(process.geteuid?.(), 0);
  });

  it('gives away nothing to which a link in the place of a folder leads', async () => {
    symlinkSync(victim, join(data, 'backup'));
    const { code } = await orchlet(['backup', join(folder, 'cluster.tgz'), '--data-dir', data]);
    assert.equal(code, 1);
    assert.deepEqual([statSync(victim).uid, readdirSync(victim)], [0, []]);
  });

  it('executes no program of its kubeconfig, and sends no file that this names', async () => {
    const mark = join(victim, 'executed');
    const exec = { apiVersion: 'client.authentication.k8s.io/v1', command: '/bin/touch', args: [mark] };
    for (const user of [{ exec }, { tokenFile: '/etc/shadow' }, { 'client-key': '/etc/shadow' }]) {
      writeFileSync(join(data, 'admin.kubeconfig'), kubeconfig(user));
      const { code, stderr } = await orchlet(['token', 'list', '--data-dir', data]);
      assert.equal(code, 1);
      assert.match(stderr, /is not what a control plane writes, because it has (exec|tokenFile|client-key)/);
      assert.ok(!existsSync(mark));
    }
  });

  it('renews no certificates where a link of its owner leads', async () => {
    writeFileSync(join(victim, 'apiserver.crt'), readFileSync(import.meta.filename));
    symlinkSync(victim, join(data, 'pki'));
    await orchlet(['certs', 'rotate', '--data-dir', data]);
    assert.deepEqual(readdirSync(victim), ['apiserver.crt']);
  });

  it('works as root where its owner cannot reach it, and gives away what root has made, not what took its place', async () => {
    chmodSync(folder, 0o700);
    assert.equal(await withRightsOfOwner(data, quiet, ({ isOfOwner }) => Promise.resolve(isOfOwner)), false);
    const made = join(data, 'made');
    mkdirSync(join(made, 'inner'), { recursive: true, mode: 0o700 });
    symlinkSync(victim, join(made, 'inner/link'));
    await giveToOwner(made, data);
    for (const path of [made, join(made, 'inner'), join(made, 'inner/link')]) assert.equal(lstatSync(path).uid, OTHER);
    assert.equal(statSync(victim).uid, 0);
    renameSync(made, `${made}-aside`);
    symlinkSync(victim, made);
    await assert.rejects(giveToOwner(made, data), /ELOOP|ENOTDIR/);
    rmSync(made);
    renameSync(`${made}-aside`, made);
    await assert.rejects(giveToOwner(made, data), /was replaced by the user 65534/);
  });

  it('has its own rights again when the work has failed', async () => {
    chownSync(dirname(data), 0, 0);
    await assert.rejects(
      withRightsOfOwner(data, quiet, async ({ asCaller }) => {
        assert.equal(process.geteuid?.(), OTHER);
        assert.equal(await asCaller(() => Promise.resolve(process.geteuid?.())), 0);
        assert.equal(process.geteuid?.(), OTHER);
        throw new Error('failed');
      }),
      /failed/,
    );
    assert.deepEqual([process.geteuid?.(), process.getegid?.()], [0, 0]);
  });
});
