/** `orchlet migrate` moves the objects of a cluster between the storage of a control plane and an etcd cluster. */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { flag, UsageError } from '../../api/component/flags.ts';
import { leapAhead, STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { contentsInEtcd, type EtcdLayout } from '../../controlplane/storage/etcd/transfer.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import { countRevisions, etcdFlags, withEtcd } from '../cluster/etcd-access.ts';
import { assertSame, databaseFromEtcd, databaseToEtcd } from '../cluster/etcd-copy.ts';
import { exchangeData } from '../host/exchange-data.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';

const STORAGES = ['sqlite', 'etcd'];

const flags = {
  from: flag({ name: 'from', type: 'string', default: '', group: 'Copy', choices: STORAGES, help: 'Storage to read.' }),
  to: flag({ name: 'to', type: 'string', default: '', group: 'Copy', choices: STORAGES, help: 'Storage to write.' }),
  dataDir: dataDirectoryFlag('Copy', 'Data directory of the control plane, which must be stopped.'),
  countRevisions,
  ...etcdFlags(['http://127.0.0.1:2379']),
} as const;

export const migrate: Command = {
  description:
    'Copies all objects from the database of a stopped control plane to etcd, in the keys and bytes of kube-apiserver 1.36, or from the etcd of a stopped kube-apiserver to the database, and compares both afterwards. Nothing else may write meanwhile. With --encryption-provider-config, both sides are encrypted by it. Certificates and keys of the control plane are not copied. What the database held before is kept beside it; etcd must have no key below the prefix.',
  flags,
  examples: [
    'orchlet migrate --from sqlite --to etcd --etcd-servers http://127.0.0.1:2379',
    'orchlet migrate --from etcd --to sqlite --etcd-servers https://etcd-1:2379 --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key',
  ],
  async run({ values }, io) {
    const { from, to } = values;
    if (from === '' || to === '' || from === to)
      throw new UsageError('name two different storages: --from sqlite --to etcd, or --from etcd --to sqlite');
    const directory = resolve(String(values['dataDir']));
    const pid = await runningProcess(join(directory, `${STORAGE_FILE}.pid`));
    if (pid !== undefined)
      throw new CommandError(
        `the control plane of ${directory} runs (process ${pid}): stop it first, with 'orchlet stop'`,
      );
    await withEtcd(values, io, (layout) =>
      withRightsOfOwner(directory, io, () =>
        to === 'etcd'
          ? toEtcd(directory, layout, { countsUp: values['countRevisions'] === true, io })
          : toSqlite(directory, layout, io),
      ),
    );
    return 0;
  },
};

async function toEtcd(
  directory: string,
  layout: EtcdLayout,
  options: { readonly countsUp: boolean; readonly io: CommandIo },
): Promise<void> {
  if (!existsSync(join(directory, STORAGE_FILE)))
    throw new CommandError(`${directory} holds no control plane's data: give its --data-dir`);
  const { objects } = await databaseToEtcd(directory, layout, options);
  options.io.stdout.write(
    `${layout.etcd.endpoint} has the ${objects} objects of ${directory} below ${layout.prefix}/\n`,
  );
}

/**
 * Copies the contents of etcd into a new database beside the data of the directory, verifies it, and replaces the data with it
 * at the end.
 */
async function toSqlite(directory: string, layout: EtcdLayout, io: CommandIo): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const fresh = await mkdtemp(join(directory, 'migrating-'));
  try {
    const contents = await databaseFromEtcd(layout, fresh, io);
    leapAhead(join(fresh, STORAGE_FILE));
    assertSame(contents, await contentsInEtcd(layout));
    const old = await exchangeData(directory, fresh, [dirname(STORAGE_FILE)]);
    const oldData = old === undefined ? '' : `; what was there is in ${old}`;
    io.stdout.write(`${directory} has the ${contents.objects} objects of ${layout.etcd.endpoint}${oldData}\n`);
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}
