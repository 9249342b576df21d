/**
 * `orchlet etcd members|remove|snapshot`: the members of an etcd that orchlet runs. Members are added by
 * `orchlet join --control-plane`.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { moveFile } from '../../api/machinery/replace-file.ts';
import { quoteText } from '../../api/meta/quote.ts';
import {
  findMember,
  healthOf,
  hexId,
  type MemberHealth,
  removalProblem,
  withMembers,
} from '../../controlplane/storage/etcd-member/etcd-membership.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import { type OwnEtcd, removeMember, requireOwnEtcd } from '../cluster/embedded-etcd.ts';
import { formatTable } from '../command-line/table.ts';

const flags = { dataDir: dataDirectoryFlag('Host') } as const;
const HEADER = ['ID', 'NAME', 'PEERS', 'VOTES', 'STATE', 'DATABASE', 'VERSION'];
const MEBIBYTE = 1024 * 1024;

function rowOf({ member, status }: MemberHealth, leaderId: string | undefined): readonly string[] {
  const answering = member.id === leaderId ? 'leader' : 'answers';
  return [
    hexId(member.id),
    member.name === '' ? '(not started)' : member.name,
    member.peerUrls.join(),
    member.isLearner ? 'no' : 'yes',
    status === undefined ? 'does not answer' : answering,
    status === undefined ? '-' : `${(status.databaseBytes / MEBIBYTE).toFixed(1)} MiB`,
    status?.version ?? '-',
  ];
}

/**
 * Whether the loss of one more voting member would stop the cluster. Always false for one or two voting members, which never
 * bear a loss.
 */
function isAtRisk(health: readonly MemberHealth[]): boolean {
  const voters = health.filter(({ member }) => !member.isLearner);
  const answering = voters.filter(({ status }) => status !== undefined).length;
  const majority = Math.floor(voters.length / 2) + 1;
  return voters.length >= 3 && answering <= majority;
}

/** Writes to a file beside `place`, which takes that name when it is complete. Resolves to the size in bytes. */
async function saveSnapshot({ ownUrl, tls }: OwnEtcd, place: string): Promise<number> {
  const partial = `${place}.${randomBytes(4).toString('hex')}.part`;
  const file = openSync(partial, 'wx', 0o600);
  try {
    const bytes = await withMembers(ownUrl, tls, (one) => one.snapshot((part) => writeFileSync(file, part)));
    fsyncSync(file);
    await moveFile(partial, place);
    return bytes;
  } finally {
    closeSync(file);
    rmSync(partial, { force: true });
  }
}

export const etcdMembers: Command = {
  description:
    'Shows the members of the etcd that the control plane of this host runs with --etcd=embedded, and whether they answer. Exits with 1 if the loss of one more member that votes would stop the cluster, although there are three or more.',
  flags,
  examples: ['orchlet etcd members'],
  async run(parsed, io) {
    const etcd = await requireOwnEtcd(String(parsed.values['dataDir']), io);
    const health = await healthOf(etcd.members, etcd.tls);
    const leaderId = health.find(({ status }) => status !== undefined)?.status?.leaderId;
    io.stdout.write(
      formatTable(
        HEADER,
        health.map((one) => rowOf(one, leaderId)),
      ),
    );
    return isAtRisk(health) ? 1 : 0;
  },
};

export const etcdRemove: Command = {
  arguments: { usage: 'MEMBER', least: 1, most: 1 },
  description:
    'Removes a member, by its name, its ID or its address, if a majority of the other members answers. The control plane of a removed member stops; to join again, its host needs an empty data directory.',
  flags,
  examples: ['orchlet etcd remove 10.0.0.3'],
  async run(parsed, io) {
    const [text = ''] = parsed.arguments;
    const etcd = await requireOwnEtcd(String(parsed.values['dataDir']), io);
    const leaving = findMember(etcd.members, text);
    if (leaving === undefined)
      throw new CommandError(`no member, or more than one, is called ${quoteText(text)}: see 'orchlet etcd members'`);
    const shown = leaving.name === '' ? leaving.peerUrls.join() : leaving.name;
    const problem = removalProblem(await healthOf(etcd.members, etcd.tls), leaving.id);
    if (problem !== undefined) throw new CommandError(`${shown} is not removed: ${problem}`);
    await removeMember(etcd, leaving);
    io.stdout.write(`${shown} is removed\n`);
    return 0;
  },
};

export const etcdSnapshot: Command = {
  arguments: { usage: 'FILE', least: 1, most: 1 },
  description:
    'Saves a consistent copy of all data of etcd to FILE, readable by its owner alone, and checks it. It is the file of etcdctl snapshot save, which etcdutl snapshot restore reads. Keys and certificates are not in it: keep the data directory as well.',
  flags,
  examples: ['orchlet etcd snapshot /root/etcd.db'],
  async run(parsed, io) {
    const [place = ''] = parsed.arguments;
    const etcd = await requireOwnEtcd(String(parsed.values['dataDir']), io);
    const bytes = await saveSnapshot(etcd, place);
    io.stdout.write(`${place} has the data of etcd (${(bytes / MEBIBYTE).toFixed(1)} MiB)\n`);
    return 0;
  },
};
