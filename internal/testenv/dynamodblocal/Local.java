import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;

// Starts DynamoDB Local on the loopback interface alone: it has no option for that.
public class Local {
    public static void main(String[] args) throws Exception {
        var local = ServerRunner.createServerFromCommandLineArgs(args);
        var field = local.getClass().getDeclaredField("server");
        field.setAccessible(true);
        for (Connector c : ((Server) field.get(local)).getConnectors()) {
            ((ServerConnector) c).setHost("127.0.0.1");
        }
        local.start();
        local.join();
    }
}
