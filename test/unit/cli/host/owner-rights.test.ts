/** Root runs commands on the data directory of another user, who has prepared it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
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
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { withRightsOfOwner } from '../../../../cli/host/owner-rights.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';
import { orchlet } from '../command-run.ts';

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

  it('runs its own checkout in a directory of that user, who could replace the program as well', () => {
    const home = join(folder, 'home');
    const own = join(home, 'checkout', '.orchlet');
    mkdirSync(own, { recursive: true });
    chownSync(home, OTHER, OTHER);
    const module = join(import.meta.dirname, '../../../../cli/host/owner-rights.ts');
    const text = `import { refuseForeign } from ${JSON.stringify(module)}; refuseForeign(process.argv[2], 'control plane');`;
    const run = (script: string) => {
      writeFileSync(script, text);
      return spawnSync(process.execPath, [script, own], { encoding: 'utf8' });
    };
    const inHome = run(join(home, 'checkout', 'main.mjs'));
    assert.equal(inHome.status, 0, inHome.stderr);
    assert.match(
      run(join(folder, 'installed.mjs')).stderr,
      /is controlled by the user 65534: root runs no control plane there/,
    );
  });

  it('says once for each command with whose rights it works', async () => {
    const lines: string[] = [];
    const stderr = { write: (line: string) => lines.push(line) > 0 };
    for (let turn = 0; turn < 2; turn++) await withRightsOfOwner(data, { stderr }, () => Promise.resolve());
    assert.deepEqual(lines, [`${data} is controlled by the user ${OTHER}: working with the rights of that user\n`]);
  });

  it('saves and restores its data, to and from a file that only root can open', async () => {
    const secret = join(folder, 'of-root');
    mkdirSync(secret, { mode: 0o700 });
    const file = join(secret, 'cluster.tgz');
    const taken = await orchlet(['backup', file, '--data-dir', data]);
    assert.equal(taken.code, 0, taken.stderr);
    assert.deepEqual([statSync(file).uid, statSync(file).mode & 0o777], [0, 0o600]);
    // The control plane of that user writes its copies there.
    assert.deepEqual([readdirSync(join(data, 'backup')), statSync(join(data, 'backup')).uid], [[], OTHER]);
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

  it('has the rights of that user where a link of that user leads to a directory of root, which another one can replace', async () => {
    const home = join(folder, 'home');
    mkdirSync(home);
    writeFileSync(join(victim, 'file'), 'secret of root', { mode: 0o600 });
    symlinkSync(victim, join(home, 'data'));
    symlinkSync(victim, join(home, 'other'));
    give(home);
    const read = withRightsOfOwner(join(home, 'data'), quiet, () => {
      renameSync(join(home, 'other'), join(home, 'data'));
      return Promise.resolve(readFileSync(join(home, 'data/file'), 'utf8'));
    });
    await assert.rejects(read, /EACCES/);
  });

  it('works in no directory of root that is below one of that user, and runs nothing there', async () => {
    const below = join(data, 'of-root');
    mkdirSync(below, { mode: 0o700 });
    for (const command of [
      ['backup', join(folder, 'cluster.tgz')],
      ['certs', 'rotate'],
    ]) {
      const { code, stderr } = await orchlet([...command, '--data-dir', below]);
      assert.equal(code, 1);
      assert.match(stderr, /of-root cannot be reached by the user 65534, who owns it or could replace it/);
    }
    const { code, stderr } = await orchlet(['controlplane', '--data-dir', below]);
    assert.equal(code, 1);
    assert.match(stderr, /of-root is controlled by the user 65534: root runs no control plane there/);
    assert.deepEqual(readdirSync(below), []);
  });

  it('executes no program of its kubeconfig, and sends no file that this names', async () => {
    const mark = join(victim, 'executed');
    const exec = {
      apiVersion: 'client.authentication.k8s.io/v1',
      command: '/bin/touch',
      args: [mark],
      interactiveMode: 'Never',
    };
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

  it('never works as root, also where its owner has closed it', async () => {
    symlinkSync(victim, join(data, 'backup'));
    chmodSync(data, 0);
    for (const command of [
      ['backup', join(folder, 'cluster.tgz')],
      ['certs', 'check'],
    ]) {
      const { code, stderr } = await orchlet([...command, '--data-dir', data]);
      assert.equal(code, 1);
      assert.match(stderr, /data cannot be reached by the user 65534, who owns it or could replace it/);
    }
    assert.deepEqual([statSync(victim).uid, readdirSync(victim)], [0, []]);
  });

  it('works with the rights of its owner in a directory of root that its owner cannot enter, as of DynamicUser=', async () => {
    const hidden = join(folder, 'private');
    mkdirSync(hidden, { mode: 0o700 });
    renameSync(data, join(hidden, 'data'));
    symlinkSync(join(hidden, 'data'), data);
    const file = join(folder, 'cluster.tgz');
    const taken = await orchlet(['backup', file, '--data-dir', data]);
    assert.equal(taken.code, 0, taken.stderr);
    assert.deepEqual([statSync(file).uid, statSync(file).mode & 0o777], [0, 0o600]);
    rmSync(join(data, 'storage'), { recursive: true });
    const restored = await orchlet(['restore', file, '--data-dir', data]);
    assert.equal(restored.code, 0, restored.stderr);
    assert.equal(statSync(join(data, 'storage/orchlet.db')).uid, OTHER);
    assert.equal(readFileSync('/proc/self/mountinfo', 'utf8').includes(hidden), false);
    rmSync(join(data, 'backup'), { recursive: true });
    symlinkSync(victim, join(data, 'backup'));
    const { code } = await orchlet(['backup', join(folder, 'again.tgz'), '--data-dir', data]);
    assert.equal(code, 1);
    assert.deepEqual([statSync(victim).uid, readdirSync(victim)], [0, []]);
  });

  it('runs neither a control plane nor an agent as root there', async () => {
    for (const command of [
      ['up', '--data-dir', data],
      ['controlplane', '--data-dir', data],
      ['agent', '--root-dir', data, '--container-runtime-endpoint', 'unix:///nonexistent.sock'],
    ]) {
      const { code, stderr } = await orchlet(command);
      assert.equal(code, 1);
      assert.match(stderr, /data is controlled by the user 65534: root runs no .* there/);
    }
    assert.deepEqual(readdirSync(data).sort(), ['storage']);
  });

  it('examines its network without executing a program of its kubeconfig', async () => {
    const mark = join(victim, 'executed');
    const exec = {
      apiVersion: 'client.authentication.k8s.io/v1',
      command: '/bin/touch',
      args: [mark],
      interactiveMode: 'Never',
    };
    writeFileSync(join(data, 'admin.kubeconfig'), kubeconfig({ exec }));
    await orchlet(['doctor', '--data-dir', data]);
    assert.ok(!existsSync(mark));
  });

  it('exports its records without the files of root to which links in it lead', async () => {
    writeFileSync(join(victim, 'key'), 'secret of root', { mode: 0o600 });
    mkdirSync(join(data, 'pki'));
    symlinkSync(join(victim, 'key'), join(data, 'pki/sa.key'));
    const file = join(folder, 'export.tgz');
    const failed = await orchlet(['doctor', '--data', '--data-dir', data, '--export', file]);
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /EACCES/);
    assert.ok(!existsSync(file));
    rmSync(join(data, 'pki/sa.key'));
    writeFileSync(join(data, 'pki/sa.pub'), 'public');
    give(join(data, 'pki'));
    const exported = await orchlet(['doctor', '--data', '--data-dir', data, '--export', file]);
    assert.equal(exported.code, 0, exported.stderr);
    assert.deepEqual([statSync(file).uid, statSync(file).mode & 0o777], [0, 0o600]);
    const restored = await orchlet(['restore', file, '--data-dir', data]);
    assert.equal(restored.code, 0, restored.stderr);
    assert.equal(readFileSync(join(data, 'pki/sa.pub'), 'utf8'), 'public');
  });

  it('takes no key of its etcd through a link to a file of root', async () => {
    writeFileSync(join(victim, 'member.json'), '{"secret":"of root"}', { mode: 0o600 });
    mkdirSync(join(data, 'etcd'));
    symlinkSync(join(victim, 'member.json'), join(data, 'etcd/member.json'));
    const { code, stderr } = await orchlet(['etcd', 'members', '--data-dir', data]);
    assert.equal(code, 1);
    assert.match(stderr, /EACCES/);
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
