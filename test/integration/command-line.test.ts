/** Runs the command as a separate process: help, invalid usage, and failing starts. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { freePort } from './free-port.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ROOT = join(import.meta.dirname, '../..');
const ORCHLET = join(ROOT, 'bin/orchlet');

function orchlet(args: readonly string[]): { code: number | null; stdout: string; stderr: string } {
  const done = spawnSync(ORCHLET, args, { encoding: 'utf8', timeout: 60_000 });
  return { code: done.status, stdout: done.stdout, stderr: done.stderr };
}

/** Returns standard error without the log. */
const errorLines = (stderr: string): string[] => stderr.split('\n').filter((line) => line.startsWith('orchlet:'));

describe('the command', () => {
  let directory = '';
  before(() => {
    directory = temporaryFolder();
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  test('shows the commands of a group, and the help of the requested command', () => {
    const group = orchlet(['token', '--help']);
    assert.equal(group.code, 0);
    assert.match(group.stdout, /token create .*\n {2}token list/);
    assert.equal(orchlet(['help', 'token', 'list']).stdout, orchlet(['token', 'list', '--help']).stdout);
  });

  test('reports a failed system call in one line with its file', () => {
    const { code, stderr } = orchlet(['controlplane', '--data-dir', '/etc/passwd']);
    assert.equal(code, 1);
    assert.match(stderr, /^orchlet: .*\/etc\/passwd.*\n$/);
  });

  test('lists its commands, and each has help at 80 columns', () => {
    const { stdout, code } = orchlet(['--help']);
    assert.equal(code, 0);
    const names = [...stdout.matchAll(/^ {2}([a-z]+(?: [a-z]+)?) {2,}\S/gm)].map(([, name]) => name ?? '');
    assert.ok(names.length >= 8, stdout);
    assert.ok(
      stdout.split('\n').every((line) => line.length <= 80),
      stdout,
    );
    for (const name of ['agent', 'controlplane', 'up', 'token create']) {
      const help = orchlet([...name.split(' '), '--help']);
      assert.equal(help.code, 0, name);
      assert.match(help.stdout, new RegExp(`^ {2}orchlet ${name} \\[FLAGS\\]`, 'm'));
      assert.deepEqual(
        help.stdout.split('\n').filter((line) => line.length > 100),
        [],
        name,
      );
    }
  });

  test('suggests the most similar word for an unknown one, with exit code 2', () => {
    for (const [args, near] of [
      [['contrlplane'], 'controlplane'],
      [['controlplane', '--secure-prt', '1'], '--secure-port'],
      [['token', 'creat'], 'create'],
    ] as const) {
      const { code, stderr } = orchlet(args);
      assert.equal(code, 2, stderr);
      assert.equal(errorLines(stderr).length, 1, stderr);
      assert.ok(stderr.includes(near), stderr);
    }
  });

  test('refuses bad values in one line, with exit code 2', () => {
    const { code, stderr } = orchlet(['controlplane', '--secure-port', 'many']);
    assert.equal(code, 2);
    assert.match(stderr, /invalid argument "many" for "--secure-port"/);
  });

  describe('a start that cannot be ends with 1 and one line', () => {
    let taken: Server;
    let port = 0;
    before(async () => {
      taken = createServer();
      await new Promise<void>((resolve) => taken.listen(0, '0.0.0.0', resolve));
      ({ port } = taken.address() as { port: number });
    });
    after(() => taken.close());

    test('if the port is in use', () => {
      const { code, stderr } = orchlet([
        'controlplane',
        '--data-dir',
        join(directory, 'port'),
        '--secure-port',
        String(port),
      ]);
      assert.equal(code, 1, stderr);
      assert.equal(errorLines(stderr).length, 1, stderr);
      assert.match(stderr, new RegExp(`port ${port} is in use`));
    });

    test('if the data directory is a file', () => {
      const file = join(directory, 'file');
      writeFileSync(file, '');
      const { code, stderr } = orchlet(['controlplane', '--data-dir', file, '--secure-port', '0']);
      assert.equal(code, 1, stderr);
      assert.equal(errorLines(stderr).length, 1, stderr);
      assert.ok(stderr.includes(file), stderr);
    });

    test('if there is no container runtime', () => {
      const { code, stderr } = orchlet([
        'agent',
        '--root-dir',
        join(directory, 'agent'),
        '--container-runtime',
        'docker',
        '--docker-endpoint',
        `unix://${directory}/none.sock`,
        '--port',
        '0',
        '--healthz-port',
        '0',
        '--read-only-port',
        '0',
      ]);
      assert.equal(code, 1, stderr);
      assert.equal(errorLines(stderr).length, 1, stderr);
      assert.ok(stderr.includes('none.sock'), stderr);
    });

    test('if the kubeconfig is missing', () => {
      const { code, stderr } = orchlet(['token', 'list', '--kubeconfig', join(directory, 'none.kubeconfig')]);
      assert.equal(code, 1, stderr);
      assert.equal(errorLines(stderr).length, 1, stderr);
      assert.ok(stderr.includes('none.kubeconfig'), stderr);
    });
  });

  test('the control plane needs nothing but its directory, port and tokens; a second one is refused', async () => {
    const data = join(directory, 'data');
    const tokens = join(directory, 'tokens.csv');
    writeFileSync(tokens, 'secret-token,admin,1,"system:masters"\n');
    const port = await freePort();
    const child = spawn(
      ORCHLET,
      ['controlplane', '--data-dir', data, '--secure-port', String(port), '--token-auth-file', tokens],
      { stdio: 'ignore' },
    );
    try {
      const kubeconfig = join(data, 'admin.kubeconfig');
      await until('the admin kubeconfig', () => (existsSync(kubeconfig) ? true : undefined));
      assert.equal(statSync(kubeconfig).mode & 0o777, 0o600);
      assert.match(readFileSync(join(data, 'pki', 'ca.crt'), 'utf8'), /BEGIN CERTIFICATE/);
      assert.match(readFileSync(join(data, 'pki', 'ca.key'), 'utf8'), /PRIVATE KEY/);
      const second = orchlet(['controlplane', '--data-dir', data, '--secure-port', '0']);
      assert.equal(second.code, 1, second.stderr);
      assert.equal(errorLines(second.stderr).length, 1, second.stderr);
      assert.ok(second.stderr.includes(String(child.pid)), second.stderr);
      const created = orchlet(['token', 'create', '--data-dir', data, '--ttl', '1h', '--description', 'a test']);
      assert.equal(created.code, 0, created.stderr);
      const token = created.stdout.trim();
      assert.match(token, /^[a-z0-9]{6}\.[a-z0-9]{16}$/);
      assert.match(orchlet(['token', 'list', '--data-dir', data]).stdout, new RegExp(`^${token} .*a test`, 'm'));
      const joining = orchlet(['token', 'create', '--data-dir', data, '--print-join-command']).stdout.trim();
      assert.match(
        joining,
        /^orchlet join https:\/\/\S+ --token \S+ --discovery-token-ca-cert-hash sha256:[0-9a-f]{64}$/,
      );
      const joinOn = (line: string) =>
        orchlet([
          ...line
            .split(' ')
            .slice(1)
            .map((word) => word.replace(/^https:\/\/[^:]+/, 'https://127.0.0.1')),
          '--config-dir',
          join(directory, 'etc'),
          '--start=false',
        ]);
      await until('a signed cluster-info', () => (joinOn(joining).code === 0 ? true : undefined));
      assert.ok(existsSync(join(directory, 'etc', 'bootstrap.kubeconfig')));
      const wrong = joinOn(joining.replace(/sha256:[0-9a-f]{64}/, `sha256:${'0'.repeat(64)}`));
      assert.equal(wrong.code, 1);
      assert.match(wrong.stderr, /not the one that was given/);
      assert.equal(orchlet(['token', 'delete', token, '--data-dir', data]).code, 0);
      assert.match(orchlet(['certs', 'check', '--data-dir', data]).stdout, /^apiserver +20/m);
      const before = readFileSync(join(data, 'pki', 'apiserver.crt'), 'utf8');
      assert.equal(orchlet(['certs', 'rotate', '--data-dir', data]).code, 0);
      assert.notEqual(readFileSync(join(data, 'pki', 'apiserver.crt'), 'utf8'), before);
    } finally {
      child.kill();
      await new Promise((resolve) => child.once('exit', resolve));
    }
  });

  test('completion scripts exist for three shells', () => {
    const script = orchlet(['completion', 'bash']).stdout;
    const check = spawnSync('bash', ['-n'], { input: script, encoding: 'utf8' });
    assert.equal(check.status, 0, check.stderr);
    assert.match(script, /--secure-port/);
    assert.match(orchlet(['completion', 'fish']).stdout, /complete -c orchlet/);
    assert.equal(orchlet(['completion', 'powershell']).code, 2);
  });

  const verifier = spawnSync('systemd-analyze', ['--version']).status === 0;
  test('systemd accepts the units', { skip: verifier ? false : 'systemd-analyze is not installed' }, () => {
    const units = ['orchlet.service', 'orchlet-agent.service'].map((name) => {
      const path = join(directory, name);
      // The program is not installed on the host of the tests.
      const text = readFileSync(join(ROOT, 'systemd', name), 'utf8').replaceAll('/usr/local/bin/orchlet', '/bin/true');
      writeFileSync(path, text);
      return path;
    });
    const verified = spawnSync('systemd-analyze', ['verify', ...units], { encoding: 'utf8' });
    assert.equal(verified.status, 0, verified.stderr);
    assert.doesNotMatch(verified.stderr, /orchlet[a-z-]*\.service:\d+:/);
  });

  test('installs below a directory, again as an upgrade, and leaves nothing behind', () => {
    const dest = join(directory, 'root');
    const program = join(directory, 'program');
    writeFileSync(program, '#!/bin/sh\necho stands in\n', { mode: 0o755 });
    const run = (script: string, args: readonly string[]) =>
      spawnSync(join(ROOT, 'scripts', script), args, { encoding: 'utf8', env: { ...process.env, DESTDIR: dest } });
    for (let round = 0; round < 2; round += 1) {
      const installed = run('install', ['--binary', program]);
      assert.equal(installed.status, 0, installed.stderr);
    }
    const unit = readFileSync(join(dest, 'etc/systemd/system/orchlet.service'), 'utf8');
    assert.match(unit, /^ExecStart=\/usr\/local\/bin\/orchlet up /m);
    assert.equal(run('uninstall', ['--purge']).status, 0);
    assert.equal(existsSync(join(dest, 'usr/local/lib/orchlet')), false);
    assert.equal(existsSync(join(dest, 'etc/orchlet')), false);
  });
});
