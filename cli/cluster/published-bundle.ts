/**
 * Stores and reads the Secret of the bundle for further control planes, which `orchlet token create --control-plane` writes and
 * `orchlet join` reads.
 */
import { flag, pickKeys } from '../../api/component/flags.ts';
import type { Client } from '../../api/client/client.ts';
import { fixedCredentials } from '../../api/client/client-credentials.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { roleBindings, roles, secrets, RBAC_GROUP } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, isStatusError } from '../../api/meta/status-error.ts';
import { controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { TOKEN_NAMESPACE } from './bootstrap-token.ts';
import { CommandError } from '../command-line/command.ts';
import { bundleNameOf, type BundleFiles, type BundleSettings, openBundle, sealBundle } from './control-plane-bundle.ts';

const GROUP = 'Control plane';
const SETTINGS = [
  'etcdServers',
  'etcdServersOverrides',
  'etcdPrefix',
  'etcdCafile',
  'etcdCertfile',
  'etcdKeyfile',
  'encryptionProviderConfig',
] as const;

/** The flags of `orchlet token create` that concern the bundle. */
export const bundleFlags = {
  controlPlane: flag({
    name: 'control-plane',
    type: 'boolean',
    default: false,
    group: GROUP,
    help: 'Let the token join a control plane for two hours at most: the keys of the cluster in --data-dir and the files below are stored encrypted, and the printed command has the key.',
  }),
  ...pickKeys(controlPlaneFlags, SETTINGS),
} as const;

/** The values of these flags. */
export interface BundleValues extends BundleSettings {
  readonly controlPlane: boolean;
  readonly dataDir: string;
}

/** Stores the bundle, which the user of this token may read, and which is deleted with the token. Returns its key. */
export async function publishBundle(client: Client, tokenSecret: KubeObject, files: BundleFiles): Promise<string> {
  const { key, data } = sealBundle(files);
  const { name: tokenName = '', uid = '' } = tokenSecret.metadata;
  const id = tokenName.replace('bootstrap-token-', '');
  const metadata = {
    name: bundleNameOf(id),
    namespace: TOKEN_NAMESPACE,
    ownerReferences: [{ apiVersion: 'v1', kind: 'Secret', name: tokenName, uid }],
  };
  await client.create(secrets, TOKEN_NAMESPACE, { apiVersion: 'v1', kind: 'Secret', metadata, data });
  await client.create(roles, TOKEN_NAMESPACE, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'Role',
    metadata,
    rules: [{ apiGroups: [''], resources: ['secrets'], resourceNames: [metadata.name], verbs: ['get'] }],
  });
  await client.create(roleBindings, TOKEN_NAMESPACE, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'RoleBinding',
    metadata,
    roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name: metadata.name },
    subjects: [{ apiGroup: RBAC_GROUP, kind: 'User', name: `system:bootstrap:${id}` }],
  });
  return key;
}

/** Where a joining host reads the bundle, and with which token. */
export interface BundlePlace {
  /** The URL of a verified server. */
  readonly url: string;
  /** The CA of the cluster, as PEM. */
  readonly ca: string;
  readonly tokenId: string;
  /** The whole token. */
  readonly token: string;
}

/**
 * Reads the bundle of a token, and decrypts it. Rejects with a `CommandError` if the token may not read one, or the key is
 * wrong.
 */
export async function fetchBundle({ url, ca, tokenId, token }: BundlePlace, key: string): Promise<BundleFiles> {
  const credentials = fixedCredentials({ authorization: `Bearer ${token}` });
  const client = new HttpClient({ server: url, ca, credentials, clock: systemClock });
  try {
    const secret = await client.get(secrets, TOKEN_NAMESPACE, bundleNameOf(tokenId));
    return openBundle((secret['data'] ?? {}) as Record<string, string>, key);
  } catch (error) {
    if (isNotFound(error) || isStatusError(error, 'Forbidden'))
      throw new CommandError(
        "the token may not join a control plane, or its two hours are over: make another with 'orchlet token create --control-plane'",
        { cause: error },
      );
    throw error;
  } finally {
    client.close();
  }
}
