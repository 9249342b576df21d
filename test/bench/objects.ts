/** What the benchmarks store. */

export const configMap = (name?: string): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: name === undefined ? { generateName: 'bench-' } : { name },
  data: { key: 'x'.repeat(100) },
});

/** A pod of about 2 KB as it is stored, as controllers make them; no scheduler takes it. Without a number the server names it. */
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
