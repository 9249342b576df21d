/** Tests the systemd unit that a control plane writes for its etcd, with a real systemd. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { etcdMissing } from '../etcd-process.ts';
import { until } from '../until.ts';
import { type Done, SystemdHost, whyNoSystemd } from './systemd-host.ts';

const ROOT = join(import.meta.dirname, '../..');
const ORCHLET = join(ROOT, 'bin/orchlet');
const DATA = '/var/lib/plane';
const UNIT = '/etc/systemd/system/orchlet-etcd.service';
const COMMAND = `${ORCHLET} controlplane --etcd=embedded --data-dir ${DATA} --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --scheduler=false --manifests-dir= --leader-elect-lease-duration=4s --leader-elect-renew-deadline=3s --leader-elect-retry-period=500ms`;
/** The confinement of `orchlet up`, which writes the unit of etcd as well, with a control plane alone. */
const PLANE = readFileSync(join(ROOT, 'systemd/orchlet.service'), 'utf8')
  .replace(/^ExecStart=.*$/m, `ExecStart=${COMMAND}`)
  .replace(/^(Wants|After)=modprobe.*\n/gm, '');

const skip = etcdMissing !== false ? etcdMissing : await whyNoSystemd();
if (skip !== false) console.log(`# skipped: ${skip}`);

describe('the unit of etcd', { skip, timeout: 240_000 }, () => {
  let host: SystemdHost;

  const kubectl = (args: string): Done => host.sh(`KUBECONFIG=${DATA}/admin.kubeconfig kubectl ${args}`);
  const done = ({ code, output }: Done): string => {
    assert.equal(code, 0, output);
    return output;
  };
  const mainPid = (unit: string): string => host.must(`systemctl show --property=MainPID --value ${unit}.service`);
  const journal = (): string =>
    host.sh('journalctl --no-pager --lines=30 --unit=plane.service --unit=orchlet-etcd.service').output;
  const ready = (): Promise<true> =>
    until(
      'a ready control plane',
      () => (kubectl('get --raw /readyz').output === 'ok' ? true : undefined),
      60_000,
    ).catch((error: unknown) => assert.fail(`${String(error)}\n${journal()}`));

  before(async () => {
    host = await SystemdHost.boot();
    host.write('/etc/systemd/system/plane.service', Buffer.from(PLANE));
    host.must('systemctl daemon-reload');
    const started = host.sh('systemctl start plane.service', 90_000);
    assert.equal(started.code, 0, `${started.output}\n${journal()}`);
    await ready();
  });
  after(async () => {
    await host?.remove();
  });

  test('is written and enabled by a control plane that systemd runs, and confines etcd to its directory', () => {
    assert.equal(host.must('systemctl is-enabled orchlet-etcd.service'), 'enabled');
    assert.match(host.must(`cat ${UNIT}`), new RegExp(`^DataDirectory=${DATA}/etcd/data$`, 'm'));
    const status = host.must(`cat /proc/${mainPid('orchlet-etcd')}/status`);
    assert.match(status, /^CapEff:\s+0+$/m);
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    assert.match(done(host.sh(`${ORCHLET} etcd members --data-dir ${DATA}`)), /leader/);
  });

  test('lets etcd vote on while its control plane restarts, is stopped or is killed', async () => {
    const pid = mainPid('orchlet-etcd');
    done(kubectl('create configmap kept --from-literal=a=b'));
    host.must('systemctl restart plane.service', 90_000);
    await ready();
    assert.equal(mainPid('orchlet-etcd'), pid);
    host.must(`kill -9 ${mainPid('plane')}`);
    await ready();
    assert.equal(mainPid('orchlet-etcd'), pid);
    assert.equal(done(kubectl('get configmap kept -o name')), 'configmap/kept');
    const stopped = done(host.sh(`${ORCHLET} stop --data-dir ${DATA} --root-dir ${DATA}/agent`));
    assert.match(stopped, /plane\.service is stopped\netcd remains a member/);
    assert.equal(mainPid('orchlet-etcd'), pid);
    host.must('systemctl start plane.service', 90_000);
    await ready();
    assert.equal(mainPid('orchlet-etcd'), pid);
  });

  test('starts etcd again when it is killed, and with new arguments of the control plane', async () => {
    const pid = mainPid('orchlet-etcd');
    host.must(`kill -9 ${pid}`);
    const second = await until('another process of etcd', () => {
      const found = mainPid('orchlet-etcd');
      return found === pid || found === '0' ? undefined : found;
    });
    await ready();
    host.must(
      "sed -i 's/--scheduler=false/--scheduler=false --etcd-client-port=2479/' /etc/systemd/system/plane.service",
    );
    host.must('systemctl daemon-reload && systemctl restart plane.service', 90_000);
    await ready();
    assert.notEqual(mainPid('orchlet-etcd'), second);
    assert.match(host.must(`cat ${UNIT}`), /https:\/\/127\.0\.0\.1:2479/);
    assert.equal(done(kubectl('get configmap kept -o name')), 'configmap/kept');
  });

  test('is used by a control plane that is started in a shell, which runs no second etcd', async () => {
    host.must('systemctl stop plane.service', 90_000);
    const pid = mainPid('orchlet-etcd');
    const command = /^ExecStart=(.*)$/m.exec(host.must('cat /etc/systemd/system/plane.service'))?.[1] ?? '';
    host.must(`systemd-run --scope --unit=shell sh -c '${command} >/run/shell.log 2>&1 & echo $! >/run/shell.pid'`);
    await ready();
    assert.equal(mainPid('orchlet-etcd'), pid);
    host.must('kill $(cat /run/shell.pid)');
  });

  test('is stopped and removed by orchlet reset', () => {
    host.must('systemctl stop plane.service', 90_000);
    const command = `${ORCHLET} reset --force --purge --data-dir ${DATA} --root-dir ${DATA}/agent`;
    assert.match(done(host.sh(command, 120_000)), /✓ orchlet-etcd\.service, which is stopped and removed/);
    assert.equal(host.sh(`test -e ${UNIT}`).code, 1);
    assert.notEqual(host.sh('systemctl is-active orchlet-etcd.service').code, 0);
    assert.equal(host.sh('pgrep -x etcd').output, '');
  });
});

describe('a control plane as a user of its own', { skip, timeout: 120_000 }, () => {
  const directory = '/var/lib/orchlet-controlplane';
  let host: SystemdHost;

  const journal = (): string => host.sh('journalctl --no-pager --lines=60 --unit=orchlet-controlplane.service').output;
  const readyz = (): string =>
    host.sh(`KUBECONFIG=${directory}/admin.kubeconfig kubectl get --raw /readyz --request-timeout=20s`).output;

  before(async () => {
    host = await SystemdHost.boot();
    host.must(`${ROOT}/scripts/install --no-start`, 90_000);
    const flags = '--etcd=embedded --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --manifests-dir=';
    host.write('/etc/orchlet/controlplane.env', Buffer.from(`ORCHLET_CONTROLPLANE_FLAGS=${flags}\n`));
  });
  after(async () => {
    await host?.remove();
  });

  test('runs etcd as its child, and is ready when systemd says so, not when etcd does', () => {
    host.must('systemctl daemon-reload');
    const started = host.sh('systemctl start orchlet-controlplane.service', 90_000);
    assert.equal(started.code, 0, `${started.output}\n${journal()}`);
    assert.equal(readyz(), 'ok');
    const pid = host.must('systemctl show --property=MainPID --value orchlet-controlplane.service');
    assert.equal(host.must('ps -o ppid= -C etcd').trim(), pid);
    assert.equal(host.sh(`test -e ${UNIT}`).code, 1);
  });

  test('stops its etcd at its own end', () => {
    host.must('systemctl restart orchlet-controlplane.service', 90_000);
    assert.equal(readyz(), 'ok');
    host.must('systemctl stop orchlet-controlplane.service', 90_000);
    assert.equal(host.sh('pgrep -x etcd').output, '');
    assert.doesNotMatch(journal(), /etcd exited/);
  });
});
