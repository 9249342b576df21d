/**
 * Tests the checks of `orchlet doctor` on hosts with one deficiency each: which check reports it, its severity, and its remedy.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkHost, type Finding, type Host } from '../../../../cli/doctor/host-checks.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const GIB = 2 ** 30;

interface HostFacts {
  readonly isRoot?: boolean;
  readonly name?: string;
  readonly now?: string;
  /** The contents of files by path. Other files exist without contents. */
  readonly files?: Readonly<Record<string, string>>;
  readonly missing?: readonly string[];
  readonly missingCommands?: readonly string[];
  /** What a program prints when it fails in a network namespace; `undefined` where none can be made. */
  readonly trials?: Readonly<Record<string, string | undefined>>;
  readonly freeGib?: number;
  readonly freeInodes?: number;
}

/** Returns a host that has everything that orchlet needs, except for the given facts. */
function hostWith(facts: HostFacts): Host {
  const files: Readonly<Record<string, string>> = {
    '/sys/fs/cgroup/cgroup.controllers': 'cpuset cpu io memory pids',
    '/proc/sys/net/ipv4/ip_forward': '1',
    '/proc/swaps': 'Filename Type Size Used Priority',
    ...facts.files,
  };
  return {
    isRoot: facts.isRoot ?? true,
    name: facts.name ?? 'Node-1.example',
    clock: new FakeClock(Date.parse(facts.now ?? '2027-03-04T05:06:07Z')),
    exists: (path) => !(facts.missing ?? []).includes(path),
    read: (path) => files[path] ?? '',
    hasCommand: (name) => !(facts.missingCommands ?? []).includes(name),
    tryInNewNetwork(program, _args, input) {
      const name = input.includes('table bridge') && program === 'nft' ? 'nft bridge' : program;
      return facts.trials !== undefined && name in facts.trials ? facts.trials[name] : '';
    },
    space: (path) => {
      assert.ok(!(facts.missing ?? []).includes(path), `${path} does not exist`);
      return { freeBytes: (facts.freeGib ?? 100) * GIB, freeInodes: facts.freeInodes ?? 1_000_000 };
    },
  };
}

const check = (facts: HostFacts): readonly Finding[] => checkHost(hostWith(facts), '/var/lib/orchlet');
const CGROUP_V2 = '/sys/fs/cgroup/cgroup.controllers';

it('a host that has everything passes every check', () => {
  for (const facts of [{}, { missing: [CGROUP_V2] }, { freeInodes: Infinity }])
    assert.deepEqual(
      check(facts).filter(({ verdict }) => verdict !== 'ok'),
      [],
    );
});

describe('one check reports what a host lacks, with a remedy', () => {
  const rows: readonly (readonly [
    what: string,
    facts: HostFacts,
    name: string,
    verdict: 'warn' | 'fail',
    text: RegExp,
    remedy: RegExp,
  ])[] = [
    ['rights of root', { isRoot: false }, 'user', 'warn', /not root/, /as root/],
    ['a name', { name: 'localhost' }, 'host name', 'fail', /"localhost"/, /hostnamectl|--hostname-override/],
    ['a name for a node', { name: 'my_host' }, 'host name', 'fail', /"my_host"/, /hostnamectl|--hostname-override/],
    ['the time', { now: '1970-01-01T00:01:00Z' }, 'clock', 'fail', /1970-01-01/, /timedatectl/],
    [
      'the memory controller of cgroup v2',
      { files: { [CGROUP_V2]: 'cpuset cpu pids' } },
      'cgroups',
      'fail',
      /^v2 without memory$/,
      /cgroup_enable=memory/,
    ],
    [
      'a controller of cgroup v1',
      { missing: [CGROUP_V2, '/sys/fs/cgroup/pids'] },
      'cgroups',
      'fail',
      /^no pids$/,
      /mount the cgroup file systems/,
    ],
    ['overlay', { missing: ['/sys/module/overlay'] }, 'overlay', 'warn', /missing/, /^modprobe overlay$/],
    [
      'bridge filters',
      { missing: ['/proc/sys/net/bridge'] },
      'br_netfilter',
      'warn',
      /missing/,
      /modprobe br_netfilter/,
    ],
    [
      'forwarding',
      { files: { '/proc/sys/net/ipv4/ip_forward': '0' } },
      'ip_forward',
      'warn',
      /off/,
      /sysctl -w net\.ipv4\.ip_forward=1/,
    ],
    [
      'memory without swap',
      { files: { '/proc/swaps': 'Filename Type Size Used Priority\n/swap file 1024 0 -2' } },
      'swap',
      'warn',
      /in use/,
      /swapoff -a/,
    ],
    ['much of the disk', { freeGib: 3 }, 'disk', 'warn', /3\.0 GiB/, /make room/],
    ['the disk', { freeGib: 0.5 }, 'disk', 'fail', /0\.5 GiB/, /make room/],
    ['inodes', { freeInodes: 10 }, 'disk', 'warn', /10 inodes/, /make room/],
    ['no inodes', { freeInodes: 0 }, 'disk', 'fail', /0 inodes/, /make room/],
    [
      'tools',
      { missingCommands: ['nsenter', 'umount'] },
      'tools',
      'warn',
      /^missing: umount, nsenter$/,
      /apt-get install .*util-linux/,
    ],
    ['iptables', { missingCommands: ['iptables'] }, 'iptables', 'warn', /^missing/, /^apt-get install iptables/],
    [
      'a kernel whose iptables can do nat',
      { trials: { 'iptables-restore': 'TABLE_ADD failed (Operation not supported): table nat' } },
      'iptables',
      'warn',
      /cannot write rules of nat.*TABLE_ADD failed/,
      /iptables-legacy/,
    ],
    [
      'a kernel with nftables',
      { trials: { nft: 'Error: Could not process rule: Operation not supported' } },
      'nftables',
      'warn',
      /cannot write rules.*not supported/,
      /modprobe nf_tables/,
    ],
    [
      'a kernel with the rules of bridges',
      { trials: { 'nft bridge': 'Error: Could not process rule: Operation not supported' } },
      'nftables',
      'warn',
      /a pod with NET_RAW can pass for another one.*not supported/,
      /CONFIG_NF_TABLES_BRIDGE/,
    ],
    ['conntrack', { missingCommands: ['conntrack'] }, 'conntrack', 'warn', /UDP/, /^apt-get install conntrack$/],
    [
      'a kernel that tracks SCTP',
      { missing: ['/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established'] },
      'conntrack',
      'warn',
      /SCTP do not work/,
      /CONFIG_NF_CT_PROTO_SCTP/,
    ],
    ['nftables', { missingCommands: ['nft'] }, 'nftables', 'warn', /not enforced/, /^apt-get install nftables/],
  ];
  for (const [what, facts, name, verdict, text, remedy] of rows)
    it(what, () => {
      const reported = check(facts).filter((finding) => finding.verdict !== 'ok');
      assert.deepEqual(
        reported.map((finding) => [finding.name, finding.verdict]),
        [[name, verdict]],
      );
      assert.match(reported[0]?.text ?? '', text);
      assert.match(reported[0]?.remedy ?? '', remedy);
    });
});

it('tools that only root can try are not reported as broken', () => {
  const facts = { trials: { 'iptables-restore': undefined, nft: undefined } };
  assert.deepEqual(
    check(facts).filter(({ verdict }) => verdict !== 'ok'),
    [],
  );
});

it('the disk of a data directory that does not exist yet is that of the nearest directory above', () => {
  const disk = check({ missing: ['/var/lib/orchlet', '/var/lib'] }).find(({ name }) => name === 'disk');
  assert.equal(disk?.text, '100 GiB free at /var');
});
