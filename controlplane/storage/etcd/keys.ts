/**
 * Translates between the keys of the storage (`/apps/deployments/default/web`) and those that kube-apiserver uses in etcd
 * (`/registry/deployments/default/web`).
 *
 * Built-in resources have no group in their keys, with two exceptions, and some have an older name. Custom resources have their
 * group: `/registry/example.com/widgets/default/w1`.
 */
import { builtinResources } from '../../../api/schema/resources.ts';

/** The paths of built-in resources that are not named by their plural. */
const PATHS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'core/endpoints': 'services/endpoints',
    'core/nodes': 'minions',
    'core/replicationcontrollers': 'controllers',
    'core/services': 'services/specs',
    'networking.k8s.io/ingresses': 'ingress',
    'apiextensions.k8s.io/customresourcedefinitions': 'apiextensions.k8s.io/customresourcedefinitions',
    'apiregistration.k8s.io/apiservices': 'apiregistration.k8s.io/apiservices',
  }),
);

/** Returns the path of a built-in resource below the prefix. `group` is empty for the core group. */
export const builtInPath = (group: string, resource: string): string =>
  PATHS.get(`${group === '' ? 'core' : group}/${resource}`) ?? resource;

/** The allocated node ports, which all servers on one etcd share. They are no object of the API. */
const NODE_PORTS = 'ranges/servicenodeports';
const NODE_PORTS_KEY = `/core/${NODE_PORTS}`;

/**
 * The prefix of keys (`/core/masterleases/192.0.2.1`) under which each running server stores its address for some seconds. They
 * are no objects of the API.
 */
export const SERVER_ADDRESSES = '/core/masterleases/';

/**
 * What kube-apiserver stores beside the objects of its API and this project does not read: allocations other than those of node
 * ports, which are computed again from the objects when a server starts, and addresses for its proxy between servers.
 */
const SERVER_STATE = ['ranges', 'peerserverleases'];

/** Whether a key of the storage is of running servers or of an allocation, which is computed again from the objects. */
export const isServerState = (key: string): boolean => key === NODE_PORTS_KEY || key.startsWith(SERVER_ADDRESSES);

/** The translation, for the resources that this server knows. */
export interface EtcdKeys {
  /** Throws for a key that is not of an object. */
  toEtcd(key: string): string;
  /**
   * Returns `undefined` for state of kube-apiserver that this project does not read, and for a resource whose objects are in
   * another etcd. Throws for a key that is not below the prefix or is of no known resource.
   */
  fromEtcd(etcdKey: string): string | undefined;
}

/**
 * Returns the translation of keys. `prefix` is the value of `--etcd-prefix`, such as `/registry`. `has` returns whether this
 * etcd has the objects of a resource (`/core/events/`). Without `has`, the etcd has all objects.
 */
export function etcdKeys(prefix: string, has: (resource: string) => boolean = () => true): EtcdKeys {
  const root = prefix.endsWith('/') ? prefix.slice(0, -1) : prefix;
  const toPath = new Map<string, string>();
  const toResource = new Map<string, string>();
  for (const { group, resource } of builtinResources()) {
    const storagePath = `${group === '' ? 'core' : group}/${resource}`;
    const path = builtInPath(group, resource);
    if (group === 'events.k8s.io') continue; // The same objects as the events of the core group.
    toPath.set(storagePath, path);
    toResource.set(path, storagePath);
  }
  toPath.set('core/masterleases', 'masterleases');
  toResource.set('masterleases', 'core/masterleases');
  return {
    toEtcd(key) {
      if (key === NODE_PORTS_KEY) return `${root}/${NODE_PORTS}`;
      const [, group = '', resource = '', ...name] = key.split('/');
      if (name.length < 1 || name.length > 2) throw new Error(`${key} is not the key of an object`);
      const storagePath = `${group}/${resource}`;
      return [root, toPath.get(storagePath) ?? storagePath, ...name].join('/');
    },
    fromEtcd(etcdKey) {
      if (!etcdKey.startsWith(`${root}/`)) throw new Error(`${etcdKey} is not below ${root}/`);
      if (etcdKey === `${root}/${NODE_PORTS}`) return NODE_PORTS_KEY;
      const segments = etcdKey.slice(root.length + 1).split('/');
      const [first = '', second = ''] = segments;
      if (SERVER_STATE.includes(first)) return undefined;
      const ofTwoSegments = toResource.get(`${first}/${second}`);
      const storagePath =
        ofTwoSegments ?? toResource.get(first) ?? (first.includes('.') ? `${first}/${second}` : undefined);
      const name = segments.slice(ofTwoSegments !== undefined || !toResource.has(first) ? 2 : 1);
      if (storagePath === undefined || name.length < 1 || name.length > 2 || name.includes(''))
        throw new Error(`${etcdKey} is of no resource that this version knows`);
      return has(`/${storagePath}/`) ? `/${storagePath}/${name.join('/')}` : undefined;
    },
  };
}
