"""Countries, regions and big cities of the world."""

from typing import Final

from headgate.knowledge.extraction.word_lists import names, words

COUNTRIES: Final = names(
    """
    Afghanistan, Albania, Algeria, Andorra, Angola, Argentina, Armenia, Australia, Austria, Azerbaijan
    Bahamas, Bahrain, Bangladesh, Barbados, Belarus, Belgium, Belize, Benin, Bhutan, Bolivia, Bosnia
    Bosnia and Herzegovina, Botswana, Brazil, Brunei, Bulgaria, Burkina Faso, Burundi, Cambodia, Cameroon
    Canada, Cape Verde, Central African Republic, Chile, China, Colombia, Comoros, Congo, Costa Rica
    Croatia, Cuba, Cyprus, Czech Republic, Czechia, Denmark, Djibouti, Dominican Republic, Ecuador, Egypt
    El Salvador, Equatorial Guinea, Eritrea, Estonia, Eswatini, Ethiopia, Fiji, Finland, France, Gabon
    Gambia, Georgia, Germany, Ghana, Greece, Grenada, Guatemala, Guinea, Guyana, Haiti, Honduras, Hungary
    Iceland, India, Indonesia, Iran, Iraq, Ireland, Israel, Italy, Ivory Coast, Jamaica, Japan, Jordan
    Kazakhstan, Kenya, Kosovo, Kuwait, Kyrgyzstan, Laos, Latvia, Lebanon, Lesotho, Liberia, Libya
    Liechtenstein, Lithuania, Luxembourg, Madagascar, Malawi, Malaysia, Maldives, Mali, Malta, Mauritania
    Mauritius, Mexico, Moldova, Monaco, Mongolia, Montenegro, Morocco, Mozambique, Myanmar, Namibia, Nepal
    Netherlands, New Zealand, Nicaragua, Niger, Nigeria, North Korea, North Macedonia, Norway, Oman
    Pakistan, Palestine, Panama, Papua New Guinea, Paraguay, Peru, Philippines, Poland, Portugal, Qatar
    Romania, Russia, Rwanda, Samoa, San Marino, Saudi Arabia, Senegal, Serbia, Seychelles, Sierra Leone
    Singapore, Slovakia, Slovenia, Somalia, South Africa, South Korea, South Sudan, Spain, Sri Lanka, Sudan
    Suriname, Sweden, Switzerland, Syria, Taiwan, Tajikistan, Tanzania, Thailand, Togo, Tonga
    Trinidad and Tobago, Tunisia, Turkey, Türkiye, Turkmenistan, Uganda, Ukraine, United Arab Emirates
    United Kingdom, United States, United States of America, Uruguay, Uzbekistan, Vanuatu, Vatican City
    Venezuela, Vietnam, Yemen, Zambia, Zimbabwe, USA, UK, UAE, U.S., U.K., U.S.A., US, Great Britain
    Britain, Holland
    """
)
REGIONS: Final = names(
    """
    Africa, Antarctica, Asia, Europe, North America, South America, Latin America, Central America, Oceania
    Middle East, Far East, Southeast Asia, East Asia, South Asia, Central Asia, Western Europe
    Eastern Europe, Central Europe, Northern Europe, Southern Europe, North Africa, West Africa, East Africa
    Sub-Saharan Africa, Scandinavia, Balkans, Benelux, Caribbean, Mediterranean, England, Scotland, Wales
    Northern Ireland, Bavaria, Saxony, Hesse, Brandenburg, Baden-Württemberg, Lower Saxony, Catalonia
    Andalusia, Lombardy, Tuscany, Sicily, Sardinia, Brittany, Normandy, Provence, Flanders, Wallonia, Tyrol
    Styria, Silesia, Crimea, Siberia, Punjab, Gujarat, Maharashtra, Karnataka, Kerala, Tamil Nadu, Telangana
    Guangdong, Zhejiang, Jiangsu, Sichuan, Hokkaido, Okinawa, Java, Sumatra, Borneo, Bali, Alabama, Alaska
    Arizona, Arkansas, California, Colorado, Connecticut, Delaware, Florida, Hawaii, Idaho, Illinois
    Indiana, Iowa, Kansas, Kentucky, Louisiana, Maine, Maryland, Massachusetts, Michigan, Minnesota
    Mississippi, Missouri, Montana, Nebraska, Nevada, New Hampshire, New Jersey, New Mexico, North Carolina
    North Dakota, Ohio, Oklahoma, Oregon, Pennsylvania, Rhode Island, South Carolina, South Dakota
    Tennessee, Texas, Utah, Vermont, Virginia, West Virginia, Wisconsin, Wyoming, Ontario, Quebec, Québec
    British Columbia, Alberta, Manitoba, Saskatchewan, Nova Scotia, New South Wales, Queensland, Tasmania
    Western Australia, South Australia, Silicon Valley, Rhine, Danube, Thames, Nile, Amazon River, Alps
    Pyrenees, Himalayas, Andes, Baltic Sea, North Sea, Black Sea, Red Sea, Pacific, Atlantic, Arctic
    Greenland, Puerto Rico
    """
)
CITIES: Final = names(
    """
    Aachen, Aarhus, Aberdeen, Abidjan, Abu Dhabi, Abuja, Accra, Adana, Addis Ababa, Adelaide, Agra
    Ahmedabad, Albuquerque, Aleppo, Alexandria, Algiers, Alicante, Almaty, Amman, Amsterdam, Ankara, Antwerp
    Athens, Atlanta, Auckland, Austin, Baghdad, Baku, Baltimore, Bangalore, Bengaluru, Bangkok, Barcelona
    Bari, Basel, Basra, Beijing, Beirut, Belfast, Belgrade, Bergen, Berlin, Bern, Bielefeld, Bilbao
    Birmingham, Bochum, Bogotá, Bogota, Bologna, Bonn, Bordeaux, Boston, Brasília, Brasilia, Bratislava
    Bremen, Brighton, Brisbane, Bristol, Brno, Brussels, Bucharest, Budapest, Buenos Aires, Buffalo, Bursa
    Busan, Cairo, Calgary, Cali, Cambridge, Canberra, Cape Town, Caracas, Cardiff, Casablanca, Chandigarh
    Changsha, Charlotte, Chelyabinsk, Chengdu, Chennai, Chicago, Chisinau, Chongqing, Christchurch
    Cincinnati, Cleveland, Cologne, Colombo, Columbus, Copenhagen, Córdoba, Cork, Curitiba, Dakar, Dalian
    Dallas, Damascus, Dar es Salaam, Darmstadt, Darwin, Delhi, Denver, Detroit, Dhaka, Doha, Donetsk
    Dortmund, Dresden, Dubai, Dublin, Duisburg, Durban, Düsseldorf, Dusseldorf, Edinburgh, Edmonton
    Eindhoven, Erfurt, Essen, Florence, Fortaleza, Frankfurt, Freiburg, Fukuoka, Gaza, Gdańsk, Gdansk
    Geneva, Genoa, Ghent, Glasgow, Gothenburg, Göteborg, Granada, Graz, Grenoble, Groningen, Guadalajara
    Guangzhou, Guatemala City, Guayaquil, Haifa, Halifax, Hamburg, Hangzhou, Hanoi, Hanover, Hannover
    Harare, Harbin, Havana, Heidelberg, Helsinki, Hiroshima, Ho Chi Minh City, Hong Kong, Honolulu, Houston
    Hyderabad, Ibadan, Incheon, Indianapolis, Innsbruck, Islamabad, Istanbul, Izmir, Jaipur, Jakarta, Jeddah
    Jerusalem, Johannesburg, Kabul, Kampala, Kano, Kanpur, Kansas City, Karachi, Karlsruhe, Kassel
    Kathmandu, Katowice, Kazan, Kharkiv, Khartoum, Kiel, Kigali, Kingston, Kinshasa, Kobe, Kolkata, Kraków
    Krakow, Kuala Lumpur, Kuwait City, Kyiv, Kiev, Kyoto, La Paz, Lagos, Lahore, Las Vegas, Lausanne, Leeds
    Leicester, Leiden, Leipzig, Lille, Lima, Linz, Lisbon, Liverpool, Ljubljana, London, Los Angeles, Luanda
    Lusaka, Lviv, Lyon, Maastricht, Madrid, Mainz, Malaga, Málaga, Malmö, Manaus, Manchester, Manila
    Mannheim, Marrakesh, Marseille, Mecca, Medellín, Melbourne, Memphis, Mexico City, Miami, Milan
    Milwaukee, Minneapolis, Minsk, Mogadishu, Mombasa, Montevideo, Montpellier, Montreal, Montréal, Moscow
    Mumbai, Munich, München, Münster, Muscat, Nagoya, Nairobi, Nanjing, Nantes, Naples, Nashville, New Delhi
    New Orleans, New York, New York City, Newark, Newcastle, Nice, Nicosia, Nottingham, Novosibirsk
    Nuremberg, Nürnberg, Oakland, Odesa, Odessa, Omaha, Oporto, Orlando, Osaka, Oslo, Ottawa, Oxford
    Palermo, Palo Alto, Panama City, Paris, Perth, Philadelphia, Phnom Penh, Phoenix, Pittsburgh, Plovdiv
    Port Moresby, Portland, Porto, Porto Alegre, Potsdam, Poznań, Prague, Pretoria, Pune, Pyongyang
    Quebec City, Quito, Rabat, Raleigh, Recife, Reykjavik, Reykjavík, Riga, Rio de Janeiro, Riyadh, Rome
    Rosario, Rostock, Rotterdam, Sacramento, Salt Lake City, Salvador, Salzburg, San Antonio, San Diego
    San Francisco, San José, San Jose, San Juan, Santa Barbara, Santiago, Santo Domingo, São Paulo
    Sao Paulo, Sapporo, Sarajevo, Seattle, Seoul, Seville, Shanghai, Sheffield, Shenzhen, Shiraz, Skopje
    Sofia, Southampton, St. Gallen, St. Louis, St. Petersburg, Stavanger, Stockholm, Strasbourg, Stuttgart
    Surat, Suzhou, Sydney, Taipei, Tallinn, Tampa, Tampere, Tashkent, Tbilisi, Tehran, Tel Aviv, The Hague
    Thessaloniki, Tianjin, Tijuana, Tirana, Tokyo, Toronto, Toulouse, Trieste, Tripoli, Trondheim, Tunis
    Turin, Turku, Uppsala, Utrecht, Valencia, Valletta, Vancouver, Venice, Verona, Vienna, Vientiane
    Vilnius, Vladivostok, Warsaw, Washington, Washington DC, Washington D.C., Wellington, Wiesbaden
    Winnipeg, Wolfsburg, Wrocław, Wroclaw, Wuhan, Würzburg, Xiamen, Yangon, Yekaterinburg, Yerevan, Yokohama
    Zagreb, Zaragoza, Zürich, Zurich
    """
)
PLACES: Final = COUNTRIES | REGIONS | CITIES
# They are as often a person, a company or a word: a place only where the text around them says so.
ALSO_OTHERS: Final = names(
    """
    Chad, Charlotte, Florence, Georgia, Jordan, Lima, Mali, Nice, Phoenix, Orlando, Sofia, Turkey
    Washington, Java, Essen, Split, Columbus, Salvador, Santiago, Victoria, Darwin, Kobe, US, Cork, Reading
    Mobile, Amazon River, Pacific, Atlantic, Arctic, Kiel, Verona
    """
)
# What a place is called by: the first ones after its name, the others before it with `of`.
HEADS: Final = words(
    """
    River Lake Canal County Province Prefecture Island Islands Valley Bay Peninsula Mountains Mountain Coast
    Desert Strait District Harbour Harbor Airport Ocean Sea
    """
)
HEADS_OF: Final = words(
    """
    State City Republic Kingdom Gulf Bay Province County Port Isle Strait Canton Commonwealth
    """
)
