/** Provides the objects and paths that the benchmarks use. */
import type { Http } from './load.ts';

export const MAPS = '/api/v1/namespaces/default/configmaps';
export const PODS = '/api/v1/namespaces/default/pods';
export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
export const PROTOBUF = 'application/vnd.kubernetes.protobuf';

/** Returns a ConfigMap with 100 bytes of data. Without a name, the server generates one. */
export const configMap = (name?: string): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: name === undefined ? { generateName: 'bench-' } : { name },
  data: { key: 'x'.repeat(100) },
});

/**
 * Returns a pod of about 2 KB, like those of controllers. No scheduler binds it. Without a number, the server generates its
 * name.
 */
export const pod = (at?: number): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    ...(at === undefined ? { generateName: 'bench-' } : { name: `bench-${String(at).padStart(6, '0')}` }),
    labels: { app: `app-${(at ?? 0) % 50}`, 'pod-template-hash': '5d4f8c7b9', tier: 'bench' },
    annotations: { 'example.com/checksum': '0123456789abcdef'.repeat(4) },
  },
  spec: {
    schedulerName: 'nobody',
    containers: [
      {
        name: 'main',
        image: 'registry.example/team/application:1.2.3',
        env: Array.from({ length: 5 }, (_, index) => ({ name: `VARIABLE_${index}`, value: `value-${index}` })),
        ports: [{ containerPort: 8080, name: 'http' }],
        resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { memory: '256Mi' } },
        readinessProbe: { httpGet: { path: '/ready', port: 'http' }, periodSeconds: 5 },
        volumeMounts: [{ name: 'config', mountPath: '/etc/config' }],
      },
    ],
    volumes: [{ name: 'config', configMap: { name: 'config' } }],
  },
});

/**
 * Creates pods and their service account, because the API server refuses pods without one, and the controller creates it only
 * some time after the start.
 */
export async function createPods(http: Http, count: number): Promise<void> {
  const account = { metadata: { name: 'default' } };
  await http.request('POST', '/api/v1/namespaces/default/serviceaccounts', account).catch((error: Error) => {
    if (!error.message.includes('409')) throw error;
  });
  await http.many(count, (at) => http.request('POST', PODS, pod(at)));
}
