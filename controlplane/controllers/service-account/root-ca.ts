/** Maintains a config map with the cluster's CA in every active namespace, which projected volumes mount. */
import { isAlreadyExists, isNotFound } from '../../../api/meta/status-error.ts';
import type { ConfigMap } from '../../../api/kinds/kinds.ts';
import { configMaps, namespaces } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { isNamespaceTerminating } from '../pod-control.ts';

const ROOT_CA_CONFIG_MAP = 'kube-root-ca.crt';
const DESCRIPTION =
  'Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. ' +
  'No other usage is guaranteed across distributions of Kubernetes clusters.';

/** Creates the controller. `rootCaPem` may have several certificates. */
export function rootCaPublisher(rootCaPem: string): RunController {
  return (environment, signal) => {
    const { client, informers } = environment;
    const spaces = informers.for(namespaces);
    const maps = informers.for(configMaps, { fieldSelector: `metadata.name=${ROOT_CA_CONFIG_MAP}` });
    const data = { 'ca.crt': rootCaPem };
    const loop = new ReconcileLoop(environment, {
      reconcile: async (namespace) => {
        if (spaces.get('', namespace)?.status?.phase !== 'Active') return;
        const current = maps.get(namespace, ROOT_CA_CONFIG_MAP);
        const annotated = current?.metadata.annotations?.['kubernetes.io/description'] === DESCRIPTION;
        if (
          current !== undefined &&
          annotated &&
          current.data?.['ca.crt'] === rootCaPem &&
          Object.keys(current.data).length === 1
        )
          return;
        const wanted: ConfigMap = {
          apiVersion: 'v1',
          kind: 'ConfigMap',
          ...current,
          metadata: {
            ...(current?.metadata ?? { name: ROOT_CA_CONFIG_MAP, namespace }),
            annotations: { ...current?.metadata.annotations, 'kubernetes.io/description': DESCRIPTION },
          },
          data,
        };
        try {
          await (current === undefined
            ? client.create(configMaps, namespace, wanted)
            : client.update(configMaps, wanted));
        } catch (error) {
          // The namespace is terminating, or the informer lags behind and will enqueue the key again.
          if (!isNamespaceTerminating(error) && !isAlreadyExists(error) && !isNotFound(error)) throw error;
        }
      },
    });
    const mapChanged = (map: ConfigMap): void => void loop.queue.add(map.metadata.namespace ?? '');
    spaces.addHandler({ add: loop.enqueue, update: (_, namespace) => loop.enqueue(namespace) });
    maps.addHandler({ update: (_, map) => mapChanged(map), delete: mapChanged });
    return loop.run(signal, spaces, maps);
  };
}
