/** Runs the command line in the process of the test: help, invalid usage, errors, and commands that need no cluster. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { commands } from '../../../cli/commands.ts';
import { orchlet } from './command-run.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

describe('help', () => {
  it('lists every command within 80 columns', async () => {
    const { code, stdout } = await orchlet(['--help']);
    assert.equal(code, 0);
    for (const { name, summary } of commands) assert.match(stdout, new RegExp(`^  ${name} +${summary}$`, 'm'));
    assert.deepEqual(
      stdout.split('\n').filter((line) => line.length > 80),
      [],
    );
  });

  it('is printed for every command, by --help and by help', async () => {
    for (const { name } of commands) {
      const words = name.split(' ');
      const { code, stdout } = await orchlet([...words, '--help']);
      assert.equal(code, 0, name);
      assert.match(stdout, new RegExp(`^  orchlet ${name} \\[FLAGS\\]`, 'm'));
      assert.deepEqual(await orchlet(['help', ...words]), { code, stdout, stderr: '' });
    }
  });

  it('of a group names the commands of that group alone', async () => {
    const { code, stdout } = await orchlet(['token', '--help']);
    assert.equal(code, 0);
    assert.match(stdout, /^Usage:\n {2}orchlet token COMMAND/);
    assert.match(stdout, /token create/);
    assert.doesNotMatch(stdout, /controlplane/);
  });

  it('is printed without a command, with exit code 2', async () => {
    const { code, stdout } = await orchlet([]);
    assert.equal(code, 2);
    assert.match(stdout, /^orchlet turns/);
  });
});

describe('bad usage ends with 2 and one line', () => {
  for (const [argv, line] of [
    [['contrlplane'], "unknown command: contrlplane (did you mean 'controlplane'?)"],
    [['token'], "'orchlet token' needs a command after it (one of: create, list, delete)"],
    [['token', 'bogus'], 'unknown command: token bogus (one of: create, list, delete)'],
    [['token', 'create', 'x'], 'the token "x" is not of the form abcdef.0123456789abcdef'],
    [['token', 'delete', 'x'], '"x" is neither a token nor the id of one'],
    [['token', 'create', '--groups', 'admins'], 'the group "admins" must begin with system:bootstrappers:'],
    [['token', 'create', '--usages', 'all'], 'unknown usage "all": signing and authentication are known'],
    [['join', 'http://host'], '"http://host" is not a server of the form https://HOST:PORT'],
    [
      ['join', 'https://host:1', '--token', 'abcdef.0123456789abcdef'],
      'give --discovery-token-ca-cert-hash, by which the cluster is verified (or --discovery-token-unsafe-skip-ca-verification)',
    ],
    [['join', 'notaurl'], '"notaurl" is not a server of the form https://HOST:PORT'],
    [
      ['join', 'https://host:1', '--token', 'x'],
      '--token, or the first line of --token-file, must be of the form abcdef.0123456789abcdef',
    ],
    [['-v'], "-v stands before a command: flags follow it, as in 'orchlet COMMAND -v'"],
    [['version', 'extra'], `'orchlet version' takes no arguments, but was given "extra"`],
    [['completion', 'bash', 'extra'], '"extra" is one argument too many: orchlet completion [FLAGS] bash|zsh|fish'],
    [['completion'], "'orchlet completion' needs bash|zsh|fish: orchlet completion [FLAGS] bash|zsh|fish"],
    [['completion', 'tcsh'], '"tcsh" is not one of bash, zsh, fish'],
    [['backup'], "'orchlet backup' needs FILE: orchlet backup [FLAGS] FILE"],
    [['token', 'delete'], "'orchlet token delete' needs TOKEN…: orchlet token delete [FLAGS] TOKEN…"],
    [['doctor', '--export', 'x.tgz'], '--export goes with --data'],
    [['certs', 'rotate-ca'], 'give the stage: --stage prepare, switch or finish'],
    [['backup', 's3://B'], '"s3://B" is not of the form s3://BUCKET/KEY'],
    [['bogus'], "unknown command: bogus ('orchlet --help' lists them)"],
    [['version', '--outptu', 'json'], 'unknown flag: --outptu (did you mean --output?)'],
    [
      ['doctor', '--ports', '6443,none'],
      'invalid argument "6443,none" for "--ports" flag: "none" is not a port from 1 to 65535',
    ],
    [
      ['agent', 'explain-eviction', '--server', 'nonsense'],
      'invalid argument "nonsense" for "--server" flag: must be of the form https://HOST:PORT',
    ],
  ] as const)
    it(`orchlet ${argv.join(' ')}`, async () => {
      assert.deepEqual(await orchlet(argv), { code: 2, stdout: '', stderr: `orchlet: ${line}\n` });
    });
});

const keys = temporaryFolder();
const pem = join(keys, 'sa.pub');
writeFileSync(
  pem,
  generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' }),
);

describe('a failure ends with 1 and one line without a stack', () => {
  for (const [argv, pattern] of [
    [['token', 'list', '--kubeconfig', '/nonexistent'], /\/nonexistent/],
    [['certs', 'check', '--data-dir', '/nonexistent'], /no control plane has run with this --data-dir/],
    [['backup', '/tmp/x.tgz', '--data-dir', '/nonexistent'], /give its --data-dir/],
    [['images', 'import', '/nonexistent.tar'], /\/nonexistent\.tar does not exist/],
    [
      ['images', 'import', import.meta.filename, '--docker-endpoint', 'unix:///nonexistent.sock', '--root-dir', '/tmp'],
      /nonexistent\.sock/,
    ],
    [
      ['agent', 'explain-eviction', '--server', 'https://127.0.0.1:1'],
      /the agent at https:\/\/127\.0\.0\.1:1 does not answer/,
    ],
    [['stop', '--pods', '--data-dir', '/nonexistent'], /no agent of \/nonexistent\/agent runs/],
    [['controlplane', '--storage-backend', 'memory', '--bind-address', 'nonsense'], /nonsense/],
    [
      ['controlplane', '--storage-backend', 'memory', '--secure-port', '0', '--tls-cipher-suites', 'NONE'],
      /NONE|cipher/i,
    ],
    [
      [
        'controlplane',
        '--storage-backend',
        'memory',
        '--secure-port',
        '0',
        '--max-requests-inflight',
        '0',
        '--max-mutating-requests-inflight',
        '0',
      ],
      /must not both be 0/,
    ],
    [
      ['controlplane', '--storage-backend', 'memory', '--secure-port', '0', '--audit-policy-file', '/nonexistent'],
      /--audit-policy-file: .*\/nonexistent/,
    ],
    [['controlplane', '--data-dir', import.meta.filename], /--data-dir: .*file already exists/],
    [
      ['controlplane', '--storage-backend', 'memory', '--token-auth-file', '/nonexistent/../nonexistent/tokens'],
      /--token-auth-file: .*\/nonexistent\/tokens/,
    ],
    [
      ['controlplane', '--storage-backend', 'memory', '--service-account-key-file', `${pem},/nonexistent`],
      /--service-account-key-file: .*\/nonexistent/,
    ],
    [['restore', '/nonexistent.tgz', '--data-dir', '/nonexistent'], /\/nonexistent\.tgz does not exist$/],
  ] as const)
    it(`orchlet ${argv.join(' ')}`, async () => {
      const { code, stderr } = await orchlet(argv, { env: { KUBECONFIG: '/nonexistent' } });
      const lines = stderr.split('\n').filter((line) => line.startsWith('orchlet:'));
      assert.equal(code, 1, stderr);
      assert.equal(lines.length, 1, stderr);
      assert.match(lines[0] ?? '', pattern);
      assert.doesNotMatch(stderr, /^ {4}at /m);
    });
});

describe('orchlet version', () => {
  it('prints text, and JSON on request', async () => {
    const { stdout } = await orchlet(['version']);
    assert.match(stdout, /^orchlet \d/);
    const facts = JSON.parse((await orchlet(['version', '-o', 'json'])).stdout) as Record<string, string>;
    assert.deepEqual(Object.keys(facts), ['orchlet', 'api', 'node', 'platform']);
  });
});

describe('orchlet doctor', () => {
  it('reports the same checks as text and as JSON', async () => {
    const text = await orchlet(['doctor', '--ports', '1']);
    const json = await orchlet(['doctor', '--ports', '1', '--output', 'json']);
    const findings = JSON.parse(json.stdout) as { name: string; verdict: string }[];
    assert.ok(findings.length > 3, json.stdout);
    for (const { name } of findings) assert.ok(text.stdout.includes(name), name);
    assert.equal(json.code, findings.some(({ verdict }) => verdict === 'fail') ? 1 : 0);
    assert.equal(text.code, json.code);
  });
});

describe('orchlet completion', () => {
  const completed = async (...words: readonly string[]): Promise<string[]> => {
    const { stdout } = await orchlet(['completion', 'bash']);
    const script = `${stdout}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _orchlet; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const done = spawnSync('bash', ['-c', script, 'bash', 'orchlet', ...words], { encoding: 'utf8' });
    assert.equal(done.stderr, '');
    return done.stdout.split('\n').filter((word) => word !== '');
  };

  it('in bash completes commands, flags, values of flags, arguments and topics of help', async () => {
    assert.ok((await completed('')).includes('controlplane'));
    assert.deepEqual(await completed('token', ''), ['create', 'list', 'delete']);
    assert.ok((await completed('controlplane', '--storage-b')).includes('--storage-backend'));
    assert.deepEqual(await completed('version', '--output', ''), ['text', 'json']);
    assert.deepEqual(await completed('version', '--output', '=', 'j'), ['json']);
    assert.deepEqual(await completed('version', '--output', 'text,j'), []);
    assert.deepEqual(await completed('completion', ''), ['bash', 'zsh', 'fish']);
    assert.ok((await completed('help', '')).includes('token'));
    assert.deepEqual(await completed('help', 'token', ''), ['create', 'list', 'delete']);
  });

  it('in bash completes each item of a list', async () => {
    const mode = ['controlplane', '--authorization-mode'];
    assert.deepEqual(await completed(...mode, 'A'), ['ABAC', 'AlwaysAllow', 'AlwaysDeny']);
    assert.deepEqual(await completed(...mode, 'Node,RB'), ['Node,RBAC']);
    assert.deepEqual(await completed(...mode, '=', 'Node,RBAC,W'), ['Node,RBAC,Webhook']);
    assert.deepEqual(await completed('agent', '--enforce-node-allocatable', 'pods,n'), ['pods,none']);
  });

  it('in fish completes each item of a list', async () => {
    const { stdout } = await orchlet(['completion', 'fish']);
    assert.match(
      stdout,
      / -l authorization-mode -x -a '\(__fish_append , Node RBAC ABAC Webhook AlwaysAllow AlwaysDeny\)' /,
    );
  });

  it('in fish describes commands and flags', async () => {
    const { stdout } = await orchlet(['completion', 'fish']);
    assert.match(stdout, /-a controlplane -d 'run the control plane alone'/);
    assert.match(stdout, /-l output -x -a 'text json' -d 'Form of the answer'/);
    assert.deepEqual(
      stdout
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('complete -c orchlet ') && !line.startsWith('#')),
      [],
    );
  });

  it('in zsh loads the script of bash', async () => {
    assert.match((await orchlet(['completion', 'zsh'])).stdout, /^autoload -U \+X bashcompinit/);
  });
});
