/**
 * Owns the files of a member of etcd that this control plane runs, below `<data-dir>/etcd`: certificates, the record of the
 * member, and the data of etcd. Only the owner can read keys and data.
 *
 * etcd has a CA of its own, because every client with a certificate of that CA may read and write everything. Certificates are
 * valid as long as the CA, because its key is in the same directory.
 */
import { join } from 'node:path';
import { parseJson, stringifyJson } from '../../../api/codec/json.ts';
import type { GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import { type Authority, ensureAuthority, ensureCertificate, type Wanted } from '../../security/pki/authority.ts';
import { readIfThere, writeFileAtomic } from '../../security/pki/files.ts';

/** The common name of the certificates with which members connect to each other. etcd refuses other names there. */
export const PEER_NAME = 'orchlet-etcd-peer';
const CLIENT_NAME = 'orchlet-etcd-client';
const SERVER_NAME = 'orchlet-etcd-server';
const LIFETIME_MS = 3650 * 86_400_000;

/** The files of a member, below `etcd` of the data directory. */
export interface EtcdPaths {
  /** The directory of etcd itself. */
  readonly data: string;
  readonly pki: string;
  readonly member: string;
  readonly pid: string;
  readonly log: string;
}

/** Computes the paths; creates nothing. */
export function etcdPaths(dataDirectory: string): EtcdPaths {
  const directory = join(dataDirectory, 'etcd');
  return {
    data: join(directory, 'data'),
    pki: join(directory, 'pki'),
    member: join(directory, 'member.json'),
    pid: join(directory, 'etcd.pid'),
    log: join(directory, 'etcd.log'),
  };
}

type CertificateName = 'ca' | 'server' | 'peer' | 'client';

/** Returns the path of a certificate (PEM). */
export const certificatePath = ({ pki }: EtcdPaths, name: CertificateName): string => join(pki, `${name}.crt`);
/** Returns the path of its private key (PEM). */
export const keyPath = ({ pki }: EtcdPaths, name: CertificateName): string => join(pki, `${name}.key`);

/**
 * Issues what is missing or stale: the CA, and the certificates of a member that others reach at `address`. Resolves to the
 * credentials of a client.
 */
export async function ensureEtcdCertificates(paths: EtcdPaths, address: string, nowMs: number): Promise<GrpcTls> {
  const ca = await ensureAuthority(paths.pki, 'ca', 'orchlet-etcd-ca', nowMs);
  const names = { dns: ['localhost'], ip: [...new Set(['127.0.0.1', address])] };
  const ensure = (name: CertificateName, wanted: Omit<Wanted, 'lifetimeMs'>) =>
    ensureWritten({ paths, ca, nowMs }, name, { ...wanted, lifetimeMs: LIFETIME_MS });
  // etcd connects to itself with the certificate of its server.
  await ensure('server', { subject: { commonName: SERVER_NAME }, usages: ['server auth', 'client auth'], names });
  await ensure('peer', { subject: { commonName: PEER_NAME }, usages: ['server auth', 'client auth'], names });
  const client = await ensure('client', { subject: { commonName: CLIENT_NAME }, usages: ['client auth'] });
  return {
    ca: Buffer.from(ca.certificatePem),
    cert: Buffer.from(client.certificatePem),
    key: Buffer.from(client.privateKeyPem),
  };
}

interface Issuing {
  readonly paths: EtcdPaths;
  readonly ca: Authority;
  readonly nowMs: number;
}

/** Issues a certificate unless it is valid. etcd reads the files, so that a certificate in memory alone is of no use. */
async function ensureWritten({ paths, ca, nowMs }: Issuing, name: CertificateName, wanted: Wanted) {
  const certificate = await ensureCertificate({ directory: paths.pki, name }, wanted, ca, nowMs);
  if (!certificate.isWritten)
    throw new Error(`the disk is full: the certificate ${name} of etcd could not be written to ${paths.pki}`);
  return certificate;
}

/** Reads the credentials with which a client connects. Resolves to `undefined` if no member was set up. */
export async function readEtcdClient(paths: EtcdPaths): Promise<GrpcTls | undefined> {
  const [ca, cert, key] = await Promise.all(
    [certificatePath(paths, 'ca'), certificatePath(paths, 'client'), keyPath(paths, 'client')].map(readIfThere),
  );
  if (ca === undefined || cert === undefined || key === undefined) return undefined;
  return { ca: Buffer.from(ca), cert: Buffer.from(cert), key: Buffer.from(key) };
}

/** The record of a member, which stays the same until its data are removed. */
export interface MemberRecord {
  /**
   * The name of the member. It is unique among all members that the cluster ever had: etcd refuses the name of a removed one.
   */
  readonly name: string;
  /** The URL for other members, such as `https://10.0.0.1:2380`. */
  readonly peerUrl: string;
  /** The URL for clients, such as `https://10.0.0.1:2379`. */
  readonly clientUrl: string;
  /** `a=https://10.0.0.1:2380,b=…`: the members at the time at which this one was added. */
  readonly initialCluster: string;
  /** Whether it was added to a cluster that existed. */
  readonly isJoined: boolean;
}

/** Reads the record of the member. Resolves to `undefined` if no member was set up. Throws if the record is damaged. */
export async function readMember(paths: EtcdPaths): Promise<MemberRecord | undefined> {
  const text = await readIfThere(paths.member);
  if (text === undefined) return undefined;
  const { name, peerUrl, clientUrl, initialCluster, isJoined } = parseJson(text).value as Record<string, unknown>;
  const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';
  if (!isText(name) || !isText(peerUrl) || !isText(clientUrl) || !isText(initialCluster))
    throw new Error(`${paths.member} does not describe a member of etcd; restore it from a backup`);
  return { name, peerUrl, clientUrl, initialCluster, isJoined: isJoined === true };
}

/** Replaces the record as a whole. */
export function writeMember(paths: EtcdPaths, record: MemberRecord): Promise<void> {
  return writeFileAtomic(paths.member, `${stringifyJson(record)}\n`, 0o600);
}
