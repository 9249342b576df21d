import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const UNIT = join(import.meta.dirname, '../../../systemd/orchlet-controlplane.service');
const hasAnalyzer = spawnSync('systemd-analyze', ['--version']).status === 0;

test('the unit of a control plane alone runs it as a user of its own, without capabilities, on a read-only host', () => {
  const lines = new Set(readFileSync(UNIT, 'utf8').split('\n'));
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

test('systemd rates the exposure of that unit 2.0 at most', { skip: !hasAnalyzer }, () => {
  const done = spawnSync('systemd-analyze', ['security', '--offline=true', '--threshold=20', '--no-pager', UNIT], {
    encoding: 'utf8',
  });
  assert.equal(done.status, 0, `${done.stdout}${done.stderr}`.split('\n').slice(-3).join('\n'));
});
