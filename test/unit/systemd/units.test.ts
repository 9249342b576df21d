/** Tests what the units in `systemd/` allow and restrict, as far as their text shows it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ETCD_UNIT, etcdUnitText } from '../../../controlplane/storage/etcd-member/etcd-unit.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const UNITS = join(import.meta.dirname, '../../../systemd');
const AGENTS = ['orchlet.service', 'orchlet-agent.service'] as const;
const hasAnalyzer = spawnSync('systemd-analyze', ['--version']).status === 0;

const linesOf = (unit: string): readonly string[] => readFileSync(join(UNITS, unit), 'utf8').split('\n');
const names = (unit: string): ReadonlySet<string> => new Set(linesOf(unit).map((line) => line.split('=')[0] ?? ''));

test('the unit of a control plane alone runs it as a user of its own, without capabilities, on a read-only host', () => {
  const lines = new Set(linesOf('orchlet-controlplane.service'));
  for (const line of [
    'DynamicUser=yes',
    'StateDirectory=orchlet-controlplane',
    'ProtectSystem=strict',
    'NoNewPrivileges=yes',
    'CapabilityBoundingSet=',
    'SystemCallFilter=@system-service',
  ])
    assert.ok(lines.has(line), line);
});

for (const unit of AGENTS) {
  test(`${unit} keeps the mount namespace of the host, without which no mount reaches a container`, () => {
    const present = names(unit);
    for (const name of [
      ...['ProtectSystem', 'ProtectHome', 'ProtectProc', 'ProcSubset', 'ProtectControlGroups', 'ProtectKernelLogs'],
      ...[
        'ProtectKernelModules',
        'ProtectKernelTunables',
        'PrivateTmp',
        'PrivateDevices',
        'PrivateMounts',
        'PrivateIPC',
      ],
      ...['ReadOnlyPaths', 'InaccessiblePaths', 'MountFlags', 'RootDirectory', 'DynamicUser', 'BindPaths'],
    ])
      assert.ok(!present.has(name), name);
  });

  test(`${unit} refuses what no agent does, and keeps what pods need`, () => {
    const lines = linesOf(unit);
    for (const line of [
      'NoNewPrivileges=yes',
      'RestrictNamespaces=net',
      'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK',
      'SystemCallArchitectures=native',
      'SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap',
    ])
      assert.ok(lines.includes(line), line);
    const capabilities = lines
      .flatMap((line) => (line.startsWith('CapabilityBoundingSet=') ? line.split('=')[1]?.split(' ') : []))
      .filter((name) => name !== undefined);
    for (const name of ['CAP_SYS_ADMIN', 'CAP_NET_ADMIN', 'CAP_NET_RAW', 'CAP_SYS_PTRACE', 'CAP_SYS_RESOURCE'])
      assert.ok(capabilities.includes(name), name);
    for (const name of ['CAP_SYS_MODULE', 'CAP_SYS_TIME', 'CAP_SYS_BOOT', 'CAP_SYS_RAWIO', 'CAP_BPF', 'CAP_SETPCAP'])
      assert.ok(!capabilities.includes(name), name);
    // These settings would prohibit the setgid bit of volumes, devices of volumes, and code that V8 compiles.
    for (const name of ['RestrictSUIDSGID', 'ProtectClock', 'DevicePolicy', 'MemoryDenyWriteExecute'])
      assert.ok(!names(unit).has(name), name);
  });
}

for (const [unit, tenths] of [
  ['orchlet-controlplane.service', 20],
  ['orchlet.service', 62],
  ['orchlet-agent.service', 62],
] as const) {
  test(`systemd rates the exposure of ${unit} ${tenths / 10} at most`, { skip: !hasAnalyzer }, () => {
    assertExposure(join(UNITS, unit), tenths);
  });
}

test(
  'systemd rates the exposure of the unit that a control plane writes for etcd 2.1 at most',
  { skip: !hasAnalyzer },
  () => {
    const path = join(temporaryFolder(), ETCD_UNIT);
    const dataDirectory = '/var/lib/orchlet/etcd/data';
    writeFileSync(
      path,
      etcdUnitText({ binary: '/usr/bin/etcd', arguments: ['--data-dir', dataDirectory], dataDirectory }),
    );
    assertExposure(path, 21);
  },
);

function assertExposure(path: string, tenths: number): void {
  const done = spawnSync(
    'systemd-analyze',
    ['security', '--offline=true', `--threshold=${tenths}`, '--no-pager', path],
    { encoding: 'utf8' },
  );
  assert.equal(done.status, 0, `${done.stdout}${done.stderr}`.split('\n').slice(-3).join('\n'));
}
