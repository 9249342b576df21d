/** Defines the types of API services, which their strategy and their columns share. */
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { WebhookService } from '../admissionregistration/webhook-client.ts';

interface ApiServiceCondition {
  type?: string;
  status?: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export type ApiService = KubeObject & {
  spec?: {
    group?: string;
    version?: string;
    service?: WebhookService & { port?: number };
    insecureSkipTLSVerify?: boolean;
    /** PEM certificates in base64. */
    caBundle?: string;
    groupPriorityMinimum?: number;
    versionPriority?: number;
  };
  status?: { conditions?: ApiServiceCondition[] };
};
