/** Ensures that every active namespace has the service account `default`, also after a client deletes it. */
import { isAlreadyExists, isStatusError } from '../../../api/meta/status-error.ts';
import { namespaces, serviceAccounts } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { isNamespaceTerminating } from '../pod-control.ts';

const NAME = 'default';

/** Runs the controller that creates the service account `default` of namespaces. A namespace that is terminating gets none. */
export const runServiceAccounts: RunController = (environment, signal) => {
  const { client, informers } = environment;
  const spaces = informers.for(namespaces);
  const accounts = informers.for(serviceAccounts);
  const loop = new ReconcileLoop(environment, {
    reconcile: async (namespace) => {
      if (spaces.get('', namespace)?.status?.phase !== 'Active' || accounts.get(namespace, NAME) !== undefined) return;
      try {
        await client.create(serviceAccounts, namespace, {
          apiVersion: 'v1',
          kind: 'ServiceAccount',
          metadata: { name: NAME, namespace },
        });
      } catch (error) {
        if (isAlreadyExists(error) || isNamespaceTerminating(error) || isStatusError(error, 'NotFound')) return;
        throw error;
      }
    },
  });
  spaces.addHandler({ add: loop.enqueue, update: (_, namespace) => loop.enqueue(namespace) });
  accounts.addHandler({
    delete: (account) => {
      if (account.metadata.name === NAME) loop.queue.add(account.metadata.namespace ?? '');
    },
  });
  return loop.run(signal, spaces, accounts);
};
