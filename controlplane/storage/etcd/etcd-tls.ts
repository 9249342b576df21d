/**
 * Reads the certificates with which a client connects to etcd, from the files of `--etcd-cafile`, `--etcd-certfile` and
 * `--etcd-keyfile`.
 */
import { readFile } from 'node:fs/promises';
import type { GrpcTls } from '../../../api/grpc/grpc-channel.ts';

interface EtcdTlsFiles {
  /** Empty texts mean that there is no such file. */
  readonly etcdCafile: string;
  readonly etcdCertfile: string;
  readonly etcdKeyfile: string;
}

/** Returns why the flags do not fit together, or `undefined`. */
export function etcdTlsProblem({ etcdCertfile, etcdKeyfile }: EtcdTlsFiles): string | undefined {
  if ((etcdCertfile === '') === (etcdKeyfile === '')) return undefined;
  return '--etcd-certfile and --etcd-keyfile belong together';
}

/**
 * Reads the CA, certificate and key for the connections to etcd. An empty path leaves the part out. Rejects if a file cannot
 * be read.
 */
export async function readEtcdTls({ etcdCafile, etcdCertfile, etcdKeyfile }: EtcdTlsFiles): Promise<GrpcTls> {
  const read = (path: string): Promise<Buffer> | undefined => (path === '' ? undefined : readFile(path));
  const [ca, cert, key] = await Promise.all([read(etcdCafile), read(etcdCertfile), read(etcdKeyfile)]);
  return { ca, cert, key };
}
