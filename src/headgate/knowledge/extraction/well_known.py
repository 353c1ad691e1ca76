"""Companies, institutions and products that most readers know by one word."""

from typing import Final

from headgate.knowledge.extraction.word_lists import names

ORGANISATIONS: Final = names(
    """
    3M, ABB, Accenture, Adidas, Adobe, Airbus, Aldi, Alibaba, Allianz, Alphabet, Amazon, AMD
    American Express, Anthropic, Apple, ASML, AstraZeneca, AT&T, Atlassian, Audi, AXA, BAE Systems, Baidu
    Barclays, BASF, Bayer, BBC, Bloomberg, BMW, BNP Paribas, Boeing, Bosch, BP, British Airways, ByteDance
    Canon, Capgemini, Carrefour, Caterpillar, Chevron, Cisco, Citigroup, Cloudflare, Coca-Cola, Cognizant
    Commerzbank, Continental, Credit Suisse, Daimler, Danone, Databricks, Dell, Deloitte, Deutsche Bank
    Deutsche Telekom, DHL, Dropbox, E.ON, eBay, EDF, Ericsson, Ernst & Young, ExxonMobil, Facebook, FedEx
    Ferrari, Fiat, Ford, Foxconn, Fujitsu, General Electric, General Motors, GitHub, GitLab, Goldman Sachs
    Google, GSK, Heineken, Hewlett-Packard, Hitachi, Honda, HSBC, Huawei, Hyundai, IBM, IKEA, Ikea, Infosys
    ING, Intel, JPMorgan, KPMG, Lenovo, Lidl, LinkedIn, L'Oréal, Lufthansa, Maersk, Mastercard, McDonald's
    McKinsey, Merck, Meta, Michelin, Microsoft, Mitsubishi, Morgan Stanley, Mozilla, Nestlé, Netflix, Nike
    Nintendo, Nissan, Nokia, Novartis, Nvidia, NVIDIA, OpenAI, Oracle, Orange, PayPal, PepsiCo, Pfizer
    Philips, Porsche, PwC, Procter & Gamble, Qualcomm, Red Hat, Renault, Roche, Rolls-Royce, Ryanair
    Salesforce, Samsung, Sanofi, SAP, Sequoia, Shell, Shopify, Siemens, Skanska, SoftBank, Sony, SpaceX
    Spotify, Stellantis, Stripe, Telefónica, Tencent, Tesco, Tesla, Thales, ThyssenKrupp, TotalEnergies
    Toshiba, Toyota, TSMC, Twitter, Uber, UBS, Unilever, UPS, Verizon, Visa, Vodafone, Volkswagen, Volvo
    Walmart, Wipro, Xiaomi, Zoom, NATO, NASA, UNESCO, UNICEF, OECD, OPEC, WTO, UN, EU, FBI, CIA
    European Union, United Nations, European Commission, European Parliament, World Bank
    World Health Organization, International Monetary Fund, Federal Reserve, Red Cross, Interpol
    """
)
# Words as well: they need more than the name.
UNSURE_ORGANISATIONS: Final = names(
    """
    Apple, Amazon, Canon, Continental, Ford, Meta, Nike, Oracle, Orange, Shell, Stripe, Visa, Zoom, Sequoia
    Caterpillar, UN, EU, Target
    """
)
PRODUCTS: Final = names(
    """
    Airflow, Amazon Web Services, Android, Angular, Ansible, AWS, Azure, Bitcoin, Bitbucket, Cassandra
    Chrome, ChatGPT, Claude Code, CentOS, Confluence, Debian, Django, Docker, Elasticsearch, Ethereum, Excel
    FastAPI, Fedora, Firefox, Flask, Gmail, Google Cloud, Google Maps, Google Workspace, Grafana, GraphQL
    Hadoop, iOS, iPad, iPhone, JavaScript, Javascript, Jenkins, Jira, Kafka, Kotlin, Kubernetes, LibreOffice
    Linux, macOS, MariaDB, Microsoft Azure, Microsoft Excel, Microsoft Office, Microsoft Teams
    Microsoft Word, MongoDB, MySQL, NetSuite, NGINX, Nginx, Node.js, NumPy, Office 365, OneDrive, OpenShift
    Oracle Database, Outlook, Photoshop, PlayStation, PostgreSQL, Postgres, PowerPoint, Prometheus, Python
    PyTorch, RabbitMQ, React, Redis, SAP ERP, SAP HANA, ServiceNow, SharePoint, Slack, Snowflake, Solaris
    SQLite, Tableau, TensorFlow, Terraform, Trello, TypeScript, Ubuntu, Unix, UNIX, Visual Studio
    Visual Studio Code, VMware, WebAssembly, Webassembly, WhatsApp, Windows, Windows Server, WordPress, Xbox
    YouTube, Zulip
    """
)
UNSURE_PRODUCTS: Final = names(
    """
    Airflow, Angular, Cassandra, Confluence, Excel, Flask, Outlook, React, Solaris, Snowflake, Slack
    Windows
    """
)
