/**
 * Creates the roles and bindings between nodes and the control plane: the bearer of a bootstrap token may request a
 * certificate, such requests are approved, a node renews its own certificate, and the API server may call the node agents.
 * Publishes the ConfigMap `cluster-info`, by which a joining host finds and verifies the cluster.
 */
import { stringifyYaml } from '../../../api/codec/yaml.ts';
import type { Client } from '../../../api/client/client.ts';
import {
  clusterRoleBindings,
  clusterRoles,
  configMaps,
  roleBindings,
  roles,
  RBAC_GROUP,
} from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isConflict, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { createIfMissing, findObject } from './existing-objects.ts';
import { CA_BUNDLE_KEY } from '../../../api/pki/ca-bundle.ts';
import { KUBELET_CLIENT } from '../../security/pki/pki.ts';
import { ANONYMOUS_USER, NODES_GROUP } from '../../../api/meta/system-users.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The group of bootstrap tokens for nodes, as other tools name it. */
const NODE_BOOTSTRAP_GROUP = 'system:bootstrappers:kubeadm:default-node-token';

/** Allows the API server to call the checkpoint endpoint of agents, which `system:kubelet-api-admin` does not allow. */
const KUBELET_CHECKPOINT = 'orchlet:kubelet-checkpoint';

const group = (name: string) => ({ kind: 'Group', name }) as const;
const user = (name: string) => ({ kind: 'User', name }) as const;

const BINDINGS = [
  {
    name: 'orchlet:node-bootstrap',
    role: 'system:node-bootstrapper',
    subject: group(NODE_BOOTSTRAP_GROUP),
  },
  {
    name: 'orchlet:node-approve-bootstrap',
    role: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient',
    subject: group(NODE_BOOTSTRAP_GROUP),
  },
  {
    name: 'orchlet:node-approve-renewal',
    role: 'system:certificates.k8s.io:certificatesigningrequests:selfnodeclient',
    subject: group(NODES_GROUP),
  },
  { name: 'orchlet:kubelet-api-admin', role: 'system:kubelet-api-admin', subject: user(KUBELET_CLIENT) },
  { name: KUBELET_CHECKPOINT, role: KUBELET_CHECKPOINT, subject: user(KUBELET_CLIENT) },
] as const;

/** Creates what is missing at a start; changes that an administrator made stay. */
export async function ensureNodeBootstrap(client: Client): Promise<void> {
  await createIfMissing(client, clusterRoles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRole',
    metadata: { name: KUBELET_CHECKPOINT },
    rules: [{ apiGroups: [''], resources: ['nodes/checkpoint'], verbs: ['*'] }],
  });
  await Promise.all(
    BINDINGS.map(({ name, role, subject }) =>
      createIfMissing(client, clusterRoleBindings, {
        apiVersion: `${RBAC_GROUP}/v1`,
        kind: 'ClusterRoleBinding',
        metadata: { name },
        roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: role },
        subjects: [{ apiGroup: RBAC_GROUP, ...subject }],
      }),
    ),
  );
}

const READER = 'orchlet:cluster-info';

/** The content of the ConfigMap `cluster-info` in kube-public, which anonymous clients may read. */
interface ClusterInfo {
  readonly server: string;
  /** The CAs that sign the API's certificates, as PEM. */
  readonly ca: string;
  /** The CA bundle that a CA rotation signed. Running agents accept no other. */
  readonly signedBundle: string | undefined;
}

/** Resolves to the CA (PEM) that `cluster-info` names, or to `undefined` if it names none. */
export async function publishedCa(client: Client): Promise<string | undefined> {
  const { data } = (await findObject(client, configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO)) ?? {};
  const encoded = /^ *certificate-authority-data: ["']?([A-Za-z0-9+/=]+)/m.exec(data?.['kubeconfig'] ?? '')?.[1];
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString();
}

/** Resolves to the host of the API server that `cluster-info` names, or to `undefined` if it names none. */
export async function publishedHost(client: Client): Promise<string | undefined> {
  const { data } = (await findObject(client, configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO)) ?? {};
  // A server wrote it with `ensureClusterInfo`, or kubeadm did.
  const url = /^ *server: ["']?([^\s"']+)/m.exec(data?.['kubeconfig'] ?? '')?.[1] ?? '';
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[(.*)\]$/, '$1') : undefined;
}

/**
 * Publishes the ConfigMap `cluster-info` in `kube-public`, which anonymous users may read: where the API is, and which CAs sign
 * its certificates.
 */
export async function ensureClusterInfo(client: Client, { server, ca, signedBundle }: ClusterInfo): Promise<void> {
  const kubeconfig = stringifyYaml({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: '', cluster: { server, 'certificate-authority-data': Buffer.from(ca).toString('base64') } }],
  });
  const data: Record<string, string> = {
    kubeconfig,
    ...(signedBundle === undefined ? {} : { [CA_BUNDLE_KEY]: signedBundle }),
  };
  const wanted: KubeObject = {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: CLUSTER_INFO, namespace: PUBLIC_NAMESPACE },
    data,
  };
  const existing = await findObject(client, configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO);
  const found = existing?.data ?? {};
  const isCurrent = found['kubeconfig'] === kubeconfig && found[CA_BUNDLE_KEY] === signedBundle;
  // Another server may write the ConfigMap at the same time. Its address is as good as the one of this server.
  const isRace = (error: unknown): boolean => isNotFound(error) || isConflict(error);
  const updated =
    existing === undefined || isCurrent
      ? existing
      : await tolerate(client.update(configMaps, { ...existing, data } as KubeObject), isRace);
  if (updated === undefined) await createIfMissing(client, configMaps, wanted);
  await createIfMissing(client, roles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'Role',
    metadata: { name: READER, namespace: PUBLIC_NAMESPACE },
    rules: [{ apiGroups: [''], resources: ['configmaps'], resourceNames: [CLUSTER_INFO], verbs: ['get'] }],
  });
  await createIfMissing(client, roleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'RoleBinding',
    metadata: { name: READER, namespace: PUBLIC_NAMESPACE },
    roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name: READER },
    subjects: [{ apiGroup: RBAC_GROUP, kind: 'User', name: ANONYMOUS_USER }],
  });
}
