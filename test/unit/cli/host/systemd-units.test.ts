import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type SystemdHost, unitOf } from '../../../../api/component/systemd.ts';
import { restartingUnits } from '../../../../cli/host/systemd-units.ts';

interface Fake {
  readonly cgroup?: string;
  /** The values by `property unit`. */
  readonly properties?: Readonly<Record<string, string>>;
  readonly isRunning?: boolean;
}

const host = ({ cgroup, properties = {}, isRunning = true }: Fake): SystemdHost => ({
  isRunning,
  cgroupOf: () => cgroup,
  systemctl: (_show, property = '', _value, unit = '') => properties[`${property.replace('--property=', '')} ${unit}`],
});

describe('the unit of a process', () => {
  test('is the service whose main process it is, also under another name', () => {
    const own = host({ cgroup: '0::/system.slice/edge.service\n', properties: { 'MainPID edge.service': '42\n' } });
    assert.equal(unitOf(42, own), 'edge.service');
  });

  test('is found in cgroup v1', () => {
    const cgroup = '12:pids:/system.slice/orchlet.service\n1:name=systemd:/system.slice/orchlet.service\n';
    assert.equal(unitOf(42, host({ cgroup, properties: { 'MainPID orchlet.service': '42\n' } })), 'orchlet.service');
  });

  test('is the innermost one, whatever cgroups it made', () => {
    const cgroup = '0::/user.slice/user@1000.service/app.slice/edge.service/agent\n';
    assert.equal(unitOf(42, host({ cgroup, properties: { 'MainPID edge.service': '42\n' } })), 'edge.service');
  });

  test('does not exist for a process that was started by hand', () => {
    const shell = { 'MainPID ssh.service': '7\n' };
    assert.equal(unitOf(42, host({ cgroup: '0::/system.slice/ssh.service\n', properties: shell })), undefined);
    assert.equal(unitOf(42, host({ cgroup: '0::/user.slice/session-1.scope\n' })), undefined);
    assert.equal(unitOf(42, host({})), undefined);
  });

  test('does not exist where systemd does not run', () => {
    const cgroup = '0::/system.slice/edge.service\n';
    const properties = { 'MainPID edge.service': '42\n' };
    assert.equal(unitOf(42, host({ cgroup, properties, isRunning: false })), undefined);
  });
});

test('units that systemd is about to start again are found, and running or stopped ones are not', () => {
  const properties = {
    'SubState orchlet.service': 'auto-restart\n',
    'SubState orchlet-agent.service': 'running\n',
    'SubState orchlet-controlplane.service': 'dead\n',
  };
  assert.deepEqual(restartingUnits(host({ properties })), ['orchlet.service']);
  assert.deepEqual(restartingUnits(host({ properties, isRunning: false })), []);
});
