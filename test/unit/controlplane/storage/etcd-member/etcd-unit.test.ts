import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { EtcdRunnerOptions } from '../../../../../controlplane/storage/etcd-member/etcd-runner.ts';
import {
  dataDirectoryOfUnit,
  ETCD_UNIT,
  EtcdUnit,
  etcdUnitText,
  type UnitManager,
} from '../../../../../controlplane/storage/etcd-member/etcd-unit.ts';
import { StartError } from '../../../../../controlplane/model/start-error.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

interface Setup {
  readonly units: UnitManager;
  /** The commands that systemctl was called with. */
  readonly calls: string[];
  readonly options: EtcdRunnerOptions;
  readonly removed: Promise<Error>;
}

function setUp(refused?: string): Setup {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'units'));
  const calls: string[] = [];
  const units: UnitManager = {
    folder: join(folder, 'units'),
    systemctl: (...args) => {
      calls.push(args.join(' '));
      return args[0] === refused ? Promise.reject(new Error('refused')) : Promise.resolve();
    },
  };
  const { promise: removed, resolve: onRemoved } = Promise.withResolvers<Error>();
  const options = {
    binary: '/usr/bin/etcd',
    arguments: ['--name', 'a'],
    dataDirectory: join(folder, 'etcd/data'),
    pidFile: join(folder, 'etcd.pid'),
    logFile: join(folder, 'etcd.log'),
    clock: systemClock,
    logger: silentLogger,
    onRemoved,
  };
  return { units, calls, options, removed };
}

describe('the text of the unit', () => {
  const text = (words: readonly string[]): string =>
    etcdUnitText({ binary: '/usr/bin/etcd', arguments: words, dataDirectory: '/var/lib/a%b/etcd/data' });

  test('quotes what systemd would expand, split or unescape', () => {
    const line = /^ExecStart=(.*)$/m.exec(text(['--name', 'a b', '$HOME', '100%', 'c:\\d', '"e"']))?.[1];
    assert.equal(line, String.raw`"/usr/bin/etcd" "--name" "a b" "$$HOME" "100%%" "c:\\d" "\"e\""`);
  });

  test('lets etcd write to its own directory only', () => {
    assert.match(text([]), /^ProtectSystem=strict\nReadWritePaths="\/var\/lib\/a%%b\/etcd"$/m);
  });

  test('is refused for a word that would begin another line', () => {
    assert.throws(() => text(['a\nExecStartPre=/bin/evil']), StartError);
  });
});

describe('a start', () => {
  test('writes, enables and starts the unit, and changes nothing the next time', async () => {
    const { units, calls, options } = setUp();
    for (let turn = 0; turn < 2; turn++) {
      const runner = new EtcdUnit(options, units);
      await runner.start();
      await runner.close();
    }
    const both = [`enable ${ETCD_UNIT}`];
    assert.deepEqual(calls, ['daemon-reload', ...both, `restart ${ETCD_UNIT}`, ...both, `start ${ETCD_UNIT}`]);
    assert.equal(await dataDirectoryOfUnit(units), options.dataDirectory);
  });

  test('restarts etcd when its arguments are others', async () => {
    const { units, calls, options } = setUp();
    for (const name of ['a', 'b']) {
      const runner = new EtcdUnit({ ...options, arguments: ['--name', name] }, units);
      await runner.start();
      await runner.close();
    }
    assert.equal(calls.filter((call) => call === `restart ${ETCD_UNIT}`).length, 2);
    assert.match(readFileSync(join(units.folder, ETCD_UNIT), 'utf8'), /"--name" "b"/);
  });

  test('fails with the remedy if systemd refuses', async () => {
    const { units, options } = setUp('restart');
    await assert.rejects(new EtcdUnit(options, units).start(), /see 'systemctl status orchlet-etcd\.service'/);
  });
});

test('a member that was removed from its cluster loses its unit, and its control plane gets the error', async () => {
  const { units, calls, options, removed } = setUp();
  const runner = new EtcdUnit(options, units);
  await runner.start();
  writeFileSync(options.logFile, '{"msg":"the member has been permanently removed from the cluster"}\n');
  assert.match((await removed).message, /was removed from the etcd cluster/);
  await until('no unit', () => (existsSync(join(units.folder, ETCD_UNIT)) ? undefined : true));
  assert.ok(calls.includes(`disable --now ${ETCD_UNIT}`));
  await runner.close();
});

test('the unit of a removed member is removed later if systemd refuses it at first', async () => {
  const { units, options, removed } = setUp();
  const systemctl = units.systemctl.bind(units);
  let refusals = 0;
  units.systemctl = (...args) => {
    if (args[0] !== 'disable' || refusals > 0) return systemctl(...args);
    refusals += 1;
    return Promise.reject(new Error('refused'));
  };
  const runner = new EtcdUnit(options, units);
  await runner.start();
  writeFileSync(options.logFile, '{"msg":"the member has been permanently removed from the cluster"}\n');
  await removed;
  assert.equal(refusals, 1);
  assert.equal(existsSync(join(units.folder, ETCD_UNIT)), false);
  await runner.close();
});
