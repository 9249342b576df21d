/**
 * Checks the network of a cluster as `orchlet doctor` does, in the network namespace in which it runs. The arguments are a
 * kubeconfig, the root directory of the agent, and the process id of a pod, because hosts in namespaces share /proc. Prints the
 * findings as JSON.
 */
import { processIo } from '../../cli/command-line/io.ts';
import { withKubeconfig } from '../../cli/cluster/cluster-access.ts';
import { readClusterFacts } from '../../cli/doctor/cluster-facts.ts';
import { apiServerFinding, checkNetwork } from '../../cli/doctor/network-checks.ts';
import { hostProbes } from '../../cli/doctor/network-probes.ts';

const [kubeconfig = '', rootDirectory = '', pid = ''] = process.argv.slice(2);
const probes = { ...hostProbes, podProcess: () => Promise.resolve(Number(pid)) };
const findings = await withKubeconfig(kubeconfig, processIo, (cluster) =>
  readClusterFacts(cluster, rootDirectory),
).then(
  (facts) => checkNetwork(facts, probes),
  (error: unknown) => [apiServerFinding('', error)],
);
console.log(JSON.stringify(findings));
