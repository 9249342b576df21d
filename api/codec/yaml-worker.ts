/** Parses large YAML texts in a thread of its own. `yaml-thread.ts` starts it. */
import { parentPort } from 'node:worker_threads';
import { performYamlJob, type YamlJob, type YamlOutcome } from './yaml-job.ts';
import { YamlSyntaxError } from './yaml.ts';

function outcomeOf(job: YamlJob): YamlOutcome {
  try {
    return performYamlJob(job);
  } catch (error) {
    if (error instanceof YamlSyntaxError) return { syntaxError: error.message };
    throw error;
  }
}

const port = parentPort;
port?.on('message', (job: YamlJob) => port.postMessage(outcomeOf(job)));
